"""What another system prompt would cost, in words, and the button that takes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, QTimer
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QWidget

from app.i18n import sentences, tr, tr_n
from app.prompt_costs import PromptCost
from app.session import Session

DELAY_MS = 250


def cost_words(cost: PromptCost) -> str:
    """What giving a prompt to conversations would do."""
    if not cost.is_known:
        return tr("What that costs can be told when a model is loaded.")
    parts = []
    if cost.unshared_blocks:
        parts.append(
            tr_n(
                "{n} block is no longer shared.",
                "{n} blocks are no longer shared.",
                cost.unshared_blocks,
            )
        )
    if cost.computed_tokens > cost.computed_before:
        blocks = tr_n("{n} block", "{n} blocks", cost.computed_blocks)
        parts.append(
            tr(
                "The next answer computes {tokens} tokens ({blocks}) instead of {before}.",
                tokens=f"{cost.computed_tokens:,}",
                blocks=blocks,
                before=f"{cost.computed_before:,}",
            )
        )
    else:
        parts.append(tr("No more tokens are computed than now."))
    return sentences(*parts)


class PromptCostRow(QWidget):
    """Asks the engine a moment after the last ``offer``; the words before it stay meanwhile."""

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._take: Callable[[], object] = _nothing
        self._who = ""
        self._asked: tuple[tuple[str, ...], str] = ((), "")
        self.cost: PromptCost | None = None
        self._costs = session.prompts.costs(self)
        self._costs.told.connect(self._on_costs_told)
        self.label = QLabel()
        self.label.setTextFormat(Qt.TextFormat.PlainText)
        self.label.setWordWrap(True)
        self.label.setProperty("tone", "muted")
        self.button = QPushButton(tr("Apply"))
        self.button.clicked.connect(lambda: self._take())
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(12)
        row.addWidget(self.label, 1)
        row.addWidget(self.button, 0, Qt.AlignmentFlag.AlignTop)
        self._delay = QTimer(self)
        self._delay.setSingleShot(True)
        self._delay.setInterval(DELAY_MS)
        self._delay.timeout.connect(self._ask)
        self.button.hide()
        self.hide()

    def offer(
        self,
        conversation_ids: Sequence[str],
        text: str,
        who: str,
        button: str = "",
        take: Callable[[], object] | None = None,
    ) -> None:
        """Says ``who`` it is about and what ``text`` would cost them; ``take`` is the button's."""
        self._who = who
        self.button.setText(button)
        self.button.setVisible(take is not None)
        self._take = take or _nothing
        question = (tuple(conversation_ids), text)
        if question != self._asked:
            self._asked = question
            self.cost = None
            self._delay.start()
        self._show_words()
        self.show()

    def withdraw(self) -> None:
        """There is nothing to offer."""
        self._delay.stop()
        self._asked = ((), "")
        self.hide()

    def _ask(self) -> None:
        self._costs.ask(*self._asked)

    def _on_costs_told(self, cost: PromptCost) -> None:
        if (cost.conversation_ids, cost.text) == self._asked:
            self.cost = cost
            self._show_words()

    def _show_words(self) -> None:
        words = cost_words(self.cost) if self.cost is not None else tr("Asking the engine…")
        self.label.setText(f"{self._who} {words}".strip())


def _nothing() -> None:
    return
