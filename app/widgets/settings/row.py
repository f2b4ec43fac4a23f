"""One setting: its name, an editor, what it does, what is wrong with what was typed, a reset."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QEvent, QObject, QTimer, Signal
from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import (
    QCheckBox,
    QFrame,
    QGridLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QVBoxLayout,
    QWidget,
)

from app.i18n import sentences, tr
from app.setting_specs import InvalidTextError, Kind, SettingSpec
from app.theme import ThemeManager
from app.widgets.buttons import IconButton
from app.widgets.calm_combo import CalmComboBox
from app.widgets.settings.words import choice_words, effect_words, setting_words
from app.widgets.text_edits import written_text

_EDITOR_WIDTH = 230
_TYPING_PAUSE_MS = 500


class SettingRow(QFrame):
    """``changed(path, value)``: a valid value was chosen. What is not valid stays in the field,
    with the reason below it, and is told to nobody.
    """

    changed = Signal(str, object)

    def __init__(self, themes: ThemeManager, spec: SettingSpec, value: Any, default: Any) -> None:
        super().__init__()
        self.spec = spec
        self._value = value
        self._default = default
        self.name, help_text = setting_words(spec.path)
        self.help_text = sentences(help_text, effect_words(spec.effect))
        self.editor = make_editor(spec)
        self.editor.setObjectName(f"setting {spec.path}")
        self.editor.widget.setObjectName(f"setting {spec.path}")
        self.editor.widget.setAccessibleName(self.name)
        self.editor.widget.setAccessibleDescription(self.help_text)
        self.error = _label("error")
        self.reset_button = IconButton(themes, "refresh", "", self, "muted")
        self.reset_button.set_name(tr("Reset “{name}”", name=self.name))
        self._lay_out()
        self.editor.set_text(spec.show(value))
        self.editor.edited.connect(self._on_editor_edited)
        self.reset_button.clicked.connect(self.reset)
        self._show_error("")

    def _lay_out(self) -> None:
        label = _label("")
        label.setText(self.name)
        label.setBuddy(self.editor.widget)
        help_label = _label("muted")
        help_label.setText(self.help_text)
        if not self.help_text:
            # The others are not shown here: without a parent they would be windows for a moment.
            help_label.hide()
        self.editor.widget.setFixedWidth(_EDITOR_WIDTH)
        texts = QVBoxLayout()
        texts.setSpacing(2)
        for widget in (label, help_label, self.error):
            texts.addWidget(widget)
        texts.addStretch(1)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 6, 0, 6)
        grid.setHorizontalSpacing(12)
        grid.setColumnStretch(0, 1)
        grid.addLayout(texts, 0, 0)
        grid.addWidget(self.editor.widget, 0, 1)
        grid.addWidget(self.reset_button, 0, 2)

    @property
    def value(self) -> Any:
        """The last valid value."""
        return self._value

    def matches(self, words: list[str]) -> bool:
        """Whether the row says all of ``words`` (in lower case)."""
        said = f"{self.name} {self.help_text} {self.spec.path}".lower()
        return all(word in said for word in words)

    def set_value(self, value: Any, default: Any) -> None:
        """The value changed elsewhere; what is being typed stays."""
        self._default = default
        if value != self._value:
            self._value = value
            self.editor.set_text(self.spec.show(value))
        self._show_error(self.error.text())

    def reset(self) -> None:
        """Back to the default."""
        self.editor.set_text(self.spec.show(self._default))
        self._on_editor_edited()

    def refuse(self, reason: str) -> None:
        """Says why a value was not taken."""
        self._show_error(reason)

    def _on_editor_edited(self) -> None:
        try:
            value = self.spec.parse(self.editor.text())
        except InvalidTextError as error:
            self._show_error(str(error))
            return
        self._show_error("")
        if value != self._value:
            self._value = value
            self.changed.emit(self.spec.path, value)
            self._show_error(self.error.text())

    def _show_error(self, text: str) -> None:
        self.error.setText(text)
        self.error.setVisible(bool(text))
        widget, state = self.editor.widget, "error" if text else ""
        if (widget.property("state") or "") != state:
            widget.setProperty("state", state)
            widget.style().unpolish(widget)
            widget.style().polish(widget)
        is_default = self._value == self._default and not text
        self.reset_button.setEnabled(not is_default)


class Editor(QObject):
    """A widget whose content is a text. ``edited``: by the user; while typing after a pause."""

    edited = Signal()

    def __init__(self, widget: QWidget) -> None:
        super().__init__(widget)
        self.widget = widget
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.setInterval(_TYPING_PAUSE_MS)
        self._pause.timeout.connect(self.edited)

    def text(self) -> str:
        raise NotImplementedError

    def set_text(self, text: str) -> None:
        """Shows ``text`` without telling."""
        raise NotImplementedError

    def _on_typed(self) -> None:
        self._pause.start()

    def _on_finished(self) -> None:
        if self._pause.isActive():
            self._pause.stop()
            self.edited.emit()


class LineEditor(Editor):
    def __init__(self, spec: SettingSpec) -> None:
        self._edit = QLineEdit()
        super().__init__(self._edit)
        if spec.optional:
            self._edit.setPlaceholderText(tr("Automatic"))
        self._edit.textEdited.connect(self._on_typed)
        self._edit.editingFinished.connect(self._on_finished)

    def text(self) -> str:
        return self._edit.text()

    def set_text(self, text: str) -> None:
        self._edit.setText(text)


class LinesEditor(Editor):
    def __init__(self) -> None:
        self._edit = QPlainTextEdit()
        super().__init__(self._edit)
        self._edit.setTabChangesFocus(True)
        self._edit.setFixedHeight(self._edit.fontMetrics().lineSpacing() * 3 + 18)
        self._edit.textChanged.connect(self._on_typed)
        self._edit.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.FocusOut:
            self._on_finished()
        return super().eventFilter(watched, event)

    def text(self) -> str:
        return written_text(self._edit)

    def set_text(self, text: str) -> None:
        blocked = self._edit.blockSignals(True)
        self._edit.setPlainText(text)
        self._edit.blockSignals(blocked)


class SwitchEditor(Editor):
    def __init__(self) -> None:
        self._box = QCheckBox()
        super().__init__(self._box)
        self._box.clicked.connect(self.edited)

    def text(self) -> str:
        return "true" if self._box.isChecked() else "false"

    def set_text(self, text: str) -> None:
        self._box.setChecked(text == "true")


class ChoiceEditor(Editor):
    def __init__(self, choices: dict[str, str]) -> None:
        self._box = CalmComboBox()
        super().__init__(self._box)
        for value, text in choices.items():
            self._box.addItem(text, value)
        self._box.activated.connect(self.edited)

    def text(self) -> str:
        return str(self._box.currentData())

    def set_text(self, text: str) -> None:
        if self._box.findData(text) < 0:
            self._box.addItem(text, text)
        self._box.setCurrentIndex(self._box.findData(text))


def make_editor(spec: SettingSpec) -> Editor:
    """The editor for a kind of setting."""
    match spec.kind:
        case Kind.CHOICE:
            return ChoiceEditor(choice_words(spec))
        case Kind.FONT:
            families = {family: family for family in QFontDatabase.families()}
            return ChoiceEditor({"": tr("The system's"), **families})
        case Kind.SWITCH:
            return SwitchEditor()
        case Kind.LINES:
            return LinesEditor()
    return LineEditor(spec)


def _label(tone: str) -> QLabel:
    label = QLabel()
    label.setWordWrap(True)
    if tone:
        label.setProperty("tone", tone)
    return label
