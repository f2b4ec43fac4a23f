"""Questions to the user."""

from __future__ import annotations

from urllib.parse import urlsplit

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import (
    QMessageBox,
    QWidget,
)

from app.i18n import tr
from app.markdown_inline import is_safe_link, visible_text


def confirm_link(url: str, parent: QWidget) -> QMessageBox | None:
    """Asks before a link is opened, and shows where it really goes. None for an unsafe address."""
    if not is_safe_link(url):
        return None
    parts = urlsplit(url)
    # Punycode shows a look-alike letter for what it is.
    host = QUrl(url).host(QUrl.ComponentFormattingOption.FullyEncoded) or parts.path
    box = QMessageBox(parent)
    box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    box.setIcon(QMessageBox.Icon.NoIcon)
    box.setTextFormat(Qt.TextFormat.PlainText)
    box.setWindowTitle(tr("Open a link"))
    box.setText(tr("Open {host} in the browser?", host=host))
    shown = visible_text(url)
    box.setInformativeText(shown if len(shown) <= 300 else shown[:300] + "…")
    open_button = box.addButton(tr("Open"), QMessageBox.ButtonRole.AcceptRole)
    copy_button = box.addButton(tr("Copy address"), QMessageBox.ButtonRole.ActionRole)
    cancel = box.addButton(QMessageBox.StandardButton.Cancel)
    box.setDefaultButton(cancel)
    open_button.clicked.connect(lambda: QDesktopServices.openUrl(QUrl(url)))
    copy_button.clicked.connect(lambda: QGuiApplication.clipboard().setText(url))
    box.open()
    return box
