"""How one conversation is sampled."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.i18n import tr
from app.session import Session
from app.setting_specs import Section, specs_of
from app.theme import ThemeManager
from app.widgets.built_window import BuiltWindow
from app.widgets.settings.presets import PresetRow
from app.widgets.settings.row import SettingRow
from app.widgets.settings.target import SamplingTarget
from app.widgets.words import shown_title

_SIZE = QSize(620, 680)


class SamplingWindow(BuiltWindow):
    """Presets and single values; changes count from the next answer on."""

    def __init__(
        self,
        session: Session,
        themes: ThemeManager,
        target: SamplingTarget,
        conversation_id: str,
        parent: QWidget,
    ) -> None:
        super().__init__(parent, _SIZE)
        self._session = session
        self._themes = themes
        self._target = target
        self._conversation_id = conversation_id
        self.rows: dict[str, SettingRow] = {}
        session.conversation_changed.connect(self._on_conversation_changed)
        session.conversation_closed.connect(self._on_conversation_closed)
        session.settings_changed.connect(self._refresh)
        self.rebuild()

    def build(self) -> QWidget:
        title = shown_title(self._session.conversation(self._conversation_id).title)
        self.setWindowTitle(tr("Sampling of “{title}”", title=title))
        note = QLabel(tr("For the next answers of this conversation alone."))
        note.setProperty("tone", "muted")
        note.setWordWrap(True)
        self.default_button = QPushButton(tr("As in the settings"))
        self.default_button.setObjectName("sampling default")
        self.default_button.clicked.connect(self._on_default_clicked)
        self.presets = PresetRow(lambda: self._target.params)
        self.presets.chosen.connect(self._on_preset_chosen)
        page = QWidget()
        column = QVBoxLayout(page)
        column.setContentsMargins(0, 0, 12, 0)
        column.setSpacing(2)
        column.addWidget(self.presets)
        for spec in specs_of(Section.SAMPLING):
            value, default = self._target.value(spec.path), self._target.default(spec.path)
            row = self.rows[spec.path] = SettingRow(self._themes, spec, value, default)
            row.changed.connect(self._on_row_changed)
            column.addWidget(row)
        column.addStretch(1)
        content = QWidget()
        head = QHBoxLayout()
        head.setContentsMargins(0, 0, 12, 0)
        head.addWidget(note, 1)
        head.addWidget(self.default_button)
        outer = QVBoxLayout(content)
        outer.setContentsMargins(16, 16, 4, 16)
        outer.setSpacing(8)
        outer.addLayout(head)
        outer.addWidget(_scrolled(page), 1)
        self._refresh()
        return content

    def _refresh(self) -> None:
        for path, row in self.rows.items():
            row.set_value(self._target.value(path), self._target.default(path))
        self.presets.refresh()
        is_own = self._session.conversation(self._conversation_id).params is not None
        self.default_button.setEnabled(is_own)

    def _on_row_changed(self, path: str, value: object) -> None:
        reason = self._target.set({path: value})
        if reason:
            self.rows[path].refuse(reason)

    def _on_preset_chosen(self, params: dict[str, object]) -> None:
        self._target.set({f"sampling.{name}": value for name, value in params.items()})

    def _on_default_clicked(self) -> None:
        self._session.set_sampling(self._conversation_id, None)

    def _on_conversation_changed(self, conversation_id: str) -> None:
        if conversation_id == self._conversation_id:
            self._refresh()

    def _on_conversation_closed(self, conversation_id: str) -> None:
        if conversation_id == self._conversation_id:
            self.close()


def _scrolled(page: QWidget) -> QScrollArea:
    area = QScrollArea()
    area.setWidget(page)
    area.setWidgetResizable(True)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    # The rows take the keyboard; the page scrolls to them.
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    return area
