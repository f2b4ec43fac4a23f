"""Names for screen readers, the keyboard alone, and contrast (DESKTOP.md, case 28)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
import shiboken6
from PySide6.QtCore import QPoint, QRect, QSize, Qt
from PySide6.QtGui import QAccessible, QColor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QLabel,
    QMainWindow,
    QMenu,
    QPushButton,
    QWidget,
)

from app.conversation import Attachment
from app.theme import ThemeManager, contrast, load_theme
from app.widgets.attachments import AttachmentPreview
from app.widgets.preferences import Preferences
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")
WINDOWS = ("settings", "shortcuts", "sampling", "help", "about", "diagnostics")


@pytest.fixture
def stage(qtbot) -> Iterator[Stage]:
    with window_stage(qtbot) as made:
        yield made


def reachable_by_tab(parent: QWidget) -> list[QWidget]:
    """What the Tab key should come to: visible, enabled, and no part of Qt's own widgets."""
    return [
        widget
        for widget in parent.findChildren(QWidget)
        if widget.focusPolicy() & Qt.FocusPolicy.TabFocus
        and widget.isVisible()
        and widget.isEnabled()
        and widget.window() is parent.window()
        and widget.focusProxy() is None
        and not widget.objectName().startswith("qt_")
        and not isinstance(widget, QMenu)
        and not _is_reached_by_arrows(widget)
    ]


def _is_reached_by_arrows(widget: QWidget) -> bool:
    """Of buttons of which one is chosen, Tab comes to that one, arrow keys to the others."""
    if not isinstance(widget, QAbstractButton) or widget.isChecked():
        return False
    group = widget.group()
    return group is not None and group.exclusive()


def walked(window: QWidget) -> list[QWidget]:
    """Everything that Tab comes to from the first widget on, once around."""
    seen: list[QWidget] = []
    for _ in range(400):
        QTest.keyClick(window.focusWidget() or window, Qt.Key.Key_Tab)
        widget = window.focusWidget()
        if widget is None or (seen and widget is seen[0]):
            break
        seen.append(widget)
    return seen


def name_of(widget: QWidget) -> str:
    interface = QAccessible.queryAccessibleInterface(widget)
    return "" if interface is None else interface.text(QAccessible.Text.Name)


def describe(widgets: list[QWidget]) -> list[str]:
    return [f"{type(w).__name__} {w.objectName()} {name_of(w)}" for w in widgets]


def open_window(preferences: Preferences, name: str) -> QWidget:
    """Opens one of the windows beside the main one."""
    getattr(preferences, f"show_{name}")()
    key = {"shortcuts": "settings"}.get(name, name)
    return next(w for k, w in preferences._open.items() if k.startswith(key))


def busy_stage(stage: Stage, qtbot) -> None:
    """A window with a bit of everything in it."""
    conversation_id = stage.page.conversation_id
    stage.page.submit("Question")
    qtbot.waitUntil(lambda: not stage.session.is_busy(conversation_id))
    stage.page.composer.attachments.add("x" * 70_000)
    stage.page.composer.attachments.add_item(Attachment("a.txt", "text"))
    stage.page.composer.edit.setPlainText("A draft")
    stage.session.report("code", "Something happened.")
    qtbot.waitUntil(lambda: stage.page.composer.gauge.text != "")


def test_tab_comes_to_everything_in_the_window_and_it_has_a_name(stage: Stage, qtbot) -> None:
    busy_stage(stage, qtbot)
    stage.window.activateWindow()
    qtbot.waitUntil(stage.window.isActiveWindow)
    stage.page.composer.attach_button.setFocus()
    seen = walked(stage.window)
    missed = set(reachable_by_tab(stage.window)) - set(seen)
    assert describe(list(missed)) == []
    assert describe([widget for widget in seen if not name_of(widget)]) == []


def test_windows_beside_it_are_used_by_keyboard_and_have_names(stage: Stage, qtbot) -> None:
    for name in WINDOWS:
        window = open_window(stage.window.preferences, name)
        window.activateWindow()
        qtbot.waitUntil(window.isActiveWindow)
        wanted = reachable_by_tab(window)
        seen = walked(window)
        assert describe(list(set(wanted) - set(seen))) == []
        assert describe([w for w in [*wanted, *seen] if not name_of(w)]) == []
        QTest.keyClick(window, Qt.Key.Key_Escape)
        assert not shiboken6.isValid(window) or not window.isVisible()
        qtbot.wait(1)


def test_the_preview_of_an_attachment_has_names(stage: Stage) -> None:
    preview = AttachmentPreview(Attachment("a.txt", "text"), stage.window)
    preview.show()
    assert [w for w in reachable_by_tab(preview) if not name_of(w)] == []
    preview.close()


def test_transcript_and_composer_have_an_accessible_interface(stage: Stage) -> None:
    for widget in (stage.page.transcript, stage.page.composer.edit):
        interface = QAccessible.queryAccessibleInterface(widget)
        assert interface is not None
        assert interface.isValid()
        assert name_of(widget)


def test_labels_of_windows_that_show_what_the_user_wrote_are_plain(stage: Stage) -> None:
    stage.session.rename(stage.page.conversation_id, "<img src=x>")
    stage.page.composer.attachments.add_item(Attachment("<b>a</b>.txt", "<i>text</i>"))
    for name in WINDOWS:
        window = open_window(stage.window.preferences, name)
        rich = [
            label.text()
            for label in window.findChildren(QLabel)
            if "<" in label.text() and label.textFormat() is not Qt.TextFormat.PlainText
        ]
        assert rich == []
        window.close()


# --- contrast as it is painted ---


def painted_contrast(widget: QWidget) -> float:
    """Contrast of the two most different colours in a widget's picture, text against ground."""
    # With the window behind it: some buttons have no ground of their own.
    place = QRect(widget.mapTo(widget.window(), QPoint(0, 0)), widget.size())
    image = widget.window().grab(place).toImage()
    ground = image.pixelColor(QPoint(image.width() // 2, 6))
    best = 1.0
    for x in range(4, image.width() - 4):
        for y in range(6, image.height() - 6):
            best = max(best, contrast(image.pixelColor(x, y), ground))
    return best


KINDS: dict[str, Callable[[QPushButton], None]] = {
    "plain": lambda button: None,
    "primary": lambda button: _set_kind(button, "primary"),
    "quiet": lambda button: _set_kind(button, "quiet"),
    "chip": lambda button: _set_kind(button, "chip"),
    "checked": lambda button: (button.setCheckable(True), button.setChecked(True)),  # type: ignore[func-returns-value]
    "disabled": lambda button: button.setEnabled(False),
    "disabled primary": lambda button: (_set_kind(button, "primary"), button.setEnabled(False)),  # type: ignore[func-returns-value]
}


def _set_kind(button: QPushButton, kind: str) -> None:
    button.setProperty("kind", kind)


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_buttons_is_readable_as_painted(qtbot, mode: str, kind: str) -> None:
    themes = ThemeManager(mode)
    themes.apply()
    button = QPushButton("Save changes")
    KINDS[kind](button)
    holder = QMainWindow()
    qtbot.addWidget(holder)
    button.setParent(holder)
    button.resize(QSize(160, 36))
    holder.show()
    assert painted_contrast(button) >= 4.5


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_boxes_to_tick_are_seen(qtbot, mode: str) -> None:
    sheet = load_theme(mode).style_sheet()
    rule = re.search(r"QCheckBox::indicator \{[^}]*border: 1px solid (#\w+)", sheet)
    assert rule is not None
    assert contrast(QColor(rule[1]), load_theme(mode).color("background")) >= 3.0


def test_a_button_pair_that_is_not_readable_is_found(qtbot) -> None:
    button = QPushButton("Save changes")
    qtbot.addWidget(button)
    button.resize(QSize(160, 36))
    palette = button.palette()
    for role in (palette.ColorRole.Button, palette.ColorRole.ButtonText):
        palette.setColor(role, QColor(120, 120, 120))
    button.setPalette(palette)
    sheet = QApplication.instance().styleSheet()
    QApplication.instance().setStyleSheet("QPushButton { background: #888; color: #999; }")
    assert painted_contrast(button) < 4.5
    QApplication.instance().setStyleSheet(sheet)
