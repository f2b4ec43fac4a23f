"""Notifications of the desktop: D-Bus on Linux, the tray elsewhere; else the task bar blinks."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from html import escape
from typing import Protocol

import shiboken6
from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication, QSystemTrayIcon, QWidget

from app import assets
from app.conversation import new_id
from app.paths import APP_NAME

_LOG = logging.getLogger(__name__)
_REPLY_S = 3.0
_LISTEN_S = 300.0
"""How long a notification can be clicked."""


class Notifier(Protocol):
    """Shows notifications; ``clicked`` is called, in the GUI thread, with the tag of one."""

    def notify(self, tag: str, title: str, text: str, open_text: str) -> None:
        """Plain text. ``open_text``: what a click does."""


class DesktopNotifier(QObject):
    """The desktop's own notifications. ``clicked(tag)``."""

    clicked = Signal(str)
    _failed = Signal()

    def __init__(self, window: QWidget) -> None:
        super().__init__()
        self._window = window
        self._tray: QSystemTrayIcon | None = None
        self._tag = ""
        self._failed.connect(self._blink, Qt.ConnectionType.QueuedConnection)

    def notify(self, tag: str, title: str, text: str, open_text: str) -> None:
        if sys.platform == "linux":
            threading.Thread(
                target=self._over_dbus,
                args=(tag, title, text, open_text),
                name=f"notification-{new_id()[:4]}",
                daemon=True,
            ).start()
        elif QSystemTrayIcon.isSystemTrayAvailable():
            self._over_tray(tag, title, text)
        else:
            self._blink()

    def close(self) -> None:
        """The window closes."""
        if self._tray is not None:
            self._tray.hide()

    def _over_dbus(self, tag: str, title: str, text: str, open_text: str) -> None:
        # The window may have gone before a click, hence RuntimeError.
        with suppress(RuntimeError):
            try:
                if show_over_dbus(title, text, open_text):
                    self.clicked.emit(tag)
            except Exception as error:
                # No bus, nobody there who shows notifications, or a broken one: all the same here.
                _LOG.info("no notification: %s", error)
                self._failed.emit()

    def _over_tray(self, tag: str, title: str, text: str) -> None:
        if self._tray is None:
            self._tray = QSystemTrayIcon(QIcon(str(assets.resource_path("icons", "quire.svg"))))
            self._tray.messageClicked.connect(self._on_message_clicked)
        self._tag = tag
        self._tray.show()
        self._tray.showMessage(title, text)

    def _on_message_clicked(self) -> None:
        self.clicked.emit(self._tag)

    def _blink(self) -> None:
        # The desktop's refusal may come when the window is gone.
        if shiboken6.isValid(self._window):
            QApplication.alert(self._window)


def show_over_dbus(title: str, text: str, open_text: str) -> bool:
    """Shows a notification and waits until it is clicked (True), closed, or old (False).

    Raises:
        OSError, KeyError, jeepney.DBusErrorResponse, TimeoutError: there is nobody to show it.
    """
    # Imported late: only Linux has it, and only there is it needed.
    from jeepney import DBusAddress, HeaderFields, MatchRule, message_bus, new_method_call
    from jeepney.io.blocking import open_dbus_connection
    from jeepney.wrappers import unwrap_msg

    service = "org.freedesktop.Notifications"
    address = DBusAddress("/org/freedesktop/Notifications", service, service)
    # Most desktops take the text for markup.
    values: tuple[object, ...] = (
        APP_NAME,
        0,
        "quire",
        title,
        escape(text),
        ["default", open_text],
        {},
        -1,
    )
    call = new_method_call(address, "Notify", "susssasa{sv}i", values)
    rule = MatchRule(type="signal", interface=service, path="/org/freedesktop/Notifications")
    with open_dbus_connection("SESSION") as connection:
        connection.send_and_get_reply(message_bus.AddMatch(rule), timeout=_REPLY_S)
        number = unwrap_msg(connection.send_and_get_reply(call, timeout=_REPLY_S))[0]
        deadline = time.monotonic() + _LISTEN_S
        while (rest := deadline - time.monotonic()) > 0:
            try:
                message = connection.receive(timeout=rest)
            except TimeoutError:
                return False
            member = message.header.fields.get(HeaderFields.member)
            if member in ("ActionInvoked", "NotificationClosed") and message.body[0] == number:
                return bool(member == "ActionInvoked")
    return False


IsActive = Callable[[], bool]


def application_is_active() -> bool:
    """Whether one of the application's windows has the focus."""
    app = QApplication.instance()
    active = Qt.ApplicationState.ApplicationActive
    return isinstance(app, QApplication) and app.applicationState() == active
