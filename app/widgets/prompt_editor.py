"""One prompt of the library: its name and text, who shares it, and what a change would cost."""

from __future__ import annotations

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.conversation import Conversation
from app.i18n import tr, tr_n
from app.session import Session
from app.store_prompts import SystemPrompt
from app.theme import ThemeManager
from app.widgets.prompt_cost_row import PromptCostRow
from app.widgets.swatch_row import SwatchRow
from app.widgets.text_edits import written_text
from app.widgets.words import shown_title

SAVE_DELAY_MS = 500


class PromptEditor(QWidget):
    """What is typed is kept a moment later. Conversations that have messages keep what they have
    until it is applied to them.
    """

    def __init__(
        self, session: Session, themes: ThemeManager, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._session = session
        self._prompts = session.prompts
        self._prompt_id = ""
        self.name = QLineEdit()
        self.name.setAccessibleName(tr("Name"))
        self.name.textEdited.connect(self._on_typed)
        self.edit = QPlainTextEdit()
        self.edit.setAccessibleName(tr("Text of the system prompt"))
        self.edit.setTabChangesFocus(True)
        self.edit.setPlaceholderText(tr("How the model should behave; may be empty"))
        self.edit.textChanged.connect(self._on_typed)
        self.default_button = QPushButton(tr("Use for new tabs"))
        self.default_button.clicked.connect(self._on_default_clicked)
        self.sharing = QLabel()
        self.sharing.setProperty("tone", "muted")
        self.swatches = SwatchRow(themes)
        self.behind = PromptCostRow(session)
        self.here = PromptCostRow(session)
        for button in (self.default_button, self.behind.button, self.here.button):
            button.setAutoDefault(False)
        self._save_timer = QTimer(self)
        self._save_timer.setSingleShot(True)
        self._save_timer.setInterval(SAVE_DELAY_MS)
        self._save_timer.timeout.connect(self.save)
        self._lay_out()

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.addWidget(self.name, 1)
        top.addWidget(self.default_button)
        shared = QHBoxLayout()
        shared.setSpacing(8)
        shared.addWidget(self.sharing)
        shared.addWidget(self.swatches)
        shared.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addLayout(top)
        column.addWidget(self.edit, 1)
        column.addLayout(shared)
        column.addWidget(self.behind)
        column.addWidget(self.here)

    @property
    def prompt(self) -> SystemPrompt | None:
        """The prompt that is shown, as it was kept last."""
        return self._prompts.get(self._prompt_id)

    def show_prompt(self, prompt_id: str) -> None:
        """Shows another prompt; what was typed into the one before is kept."""
        if prompt_id != self._prompt_id:
            # The list follows what is shown here, also while the one before is being kept.
            before, self._prompt_id = self._prompt_id, prompt_id
            self._keep(before)
            prompt = self.prompt
            self.edit.blockSignals(True)
            self.name.setText("" if prompt is None else prompt.name)
            self.edit.setPlainText("" if prompt is None else prompt.text)
            self.edit.blockSignals(False)
        self.refresh()

    def save(self) -> None:
        """Keeps what was typed."""
        self._keep(self._prompt_id)

    def _keep(self, prompt_id: str) -> None:
        self._save_timer.stop()
        if prompt_id:
            self._prompts.change(prompt_id, self.name.text(), written_text(self.edit))

    def refresh(self) -> None:
        """Conversations came, went or changed, or another prompt is the default."""
        prompt = self.prompt
        self.setEnabled(prompt is not None)
        sharers = [] if prompt is None else self._prompts.sharers(prompt.text)
        self.swatches.set_conversations(sharers)
        self.sharing.setText(
            tr("Open tabs that begin with it:") if sharers else tr("No open tab begins with it.")
        )
        is_default = prompt is not None and prompt == self._prompts.default
        words = tr("Used for new tabs") if is_default else tr("Use for new tabs")
        self.default_button.setText(words)
        self.default_button.setEnabled(not is_default)
        self._offer()

    def _offer(self) -> None:
        """To conversations that have another text: what this one would cost them."""
        text, open_ = written_text(self.edit), self._conversations()
        behind: list[Conversation] = []
        front: list[Conversation] = []
        if self.prompt is not None:
            others = [c for c in open_ if c.system_prompt != text]
            behind = [c for c in others if c.prompt_id == self._prompt_id and c.messages]
            active = self._session.active_conversation_id
            front = [c for c in others if c.conversation_id == active and c not in behind]
        numbers = ", ".join(str(c.number) for c in behind)
        who = tr_n(
            "Tab {numbers} keeps the earlier text.",
            "Tabs {numbers} keep the earlier text.",
            len(behind),
            numbers=numbers,
        )
        button = tr_n("Apply to {n} tab", "Apply to {n} tabs", len(behind))
        self._offer_to(self.behind, behind, who, button)
        for conversation in front:
            title = shown_title(conversation.title)
            who = tr("Tab {n}, “{title}”:", n=conversation.number, title=title)
        self._offer_to(self.here, front, who, tr("Use in this tab"))

    def _offer_to(
        self, row: PromptCostRow, found: list[Conversation], who: str, button: str
    ) -> None:
        ids = [c.conversation_id for c in found]
        if ids:
            row.offer(ids, written_text(self.edit), who, button, lambda: self._apply(ids))
        else:
            row.withdraw()

    def _apply(self, ids: list[str]) -> None:
        self.save()
        open_ids = self._session.conversation_ids()
        self._prompts.apply(self._prompt_id, [i for i in ids if i in open_ids])

    def _conversations(self) -> list[Conversation]:
        return [self._session.conversation(i) for i in self._session.conversation_ids()]

    def _on_typed(self) -> None:
        self._save_timer.start()
        self._offer()

    def _on_default_clicked(self) -> None:
        self.save()
        self._prompts.set_default(self._prompt_id)
