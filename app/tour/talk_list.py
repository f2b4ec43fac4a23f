"""The tour's conversations as small cards: number, question, the end of each answer."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QSizePolicy, QVBoxLayout, QWidget

from app.cache_panel.parts import plain_label, set_text, wrapped_label
from app.theme import ThemeManager
from app.tour.talks import Talk, Talks
from app.widgets.swatch import Activity, mark_pixmap

_SHOWN_CHARS = 110


class TalkList(QWidget):
    """Follows ``talks``."""

    def __init__(self, talks: Talks, themes: ThemeManager, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._talks = talks
        self._themes = themes
        self.cards: dict[str, TalkCard] = {}
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Maximum)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(6)
        talks.conversation_added.connect(self._on_conversation_added)
        talks.conversation_closed.connect(self._on_conversation_closed)

    def _on_conversation_added(self, conversation_id: str) -> None:
        card = TalkCard(self._talks.talks[conversation_id], self._themes)
        self.cards[conversation_id] = card
        self._column.addWidget(card)

    def _on_conversation_closed(self, conversation_id: str) -> None:
        card = self.cards.pop(conversation_id)
        self._column.removeWidget(card)
        card.hide()
        card.deleteLater()

    def show_text(self, conversation_id: str) -> None:
        """An answer has grown."""
        card = self.cards.get(conversation_id)
        if card is not None:
            card.refresh()


class TalkCard(QFrame):
    """One conversation; painted anew only when its text grows."""

    def __init__(self, talk: Talk, themes: ThemeManager) -> None:
        super().__init__()
        self._talk = talk
        self._themes = themes
        self.setProperty("role", "card")
        self._swatch = QLabel()
        self.title = plain_label(talk.conversation.title)
        self.title.setProperty("role", "heading")
        question = talk.question if len(talk.question) <= 80 else talk.question[:79] + "…"
        self.question = wrapped_label(tone="muted")
        self.question.setText(question)
        self.answers: list[QLabel] = []
        head = QHBoxLayout()
        head.setSpacing(0)
        head.addWidget(self._swatch, 0, Qt.AlignmentFlag.AlignVCenter)
        head.addWidget(self.title, 1)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(10, 6, 10, 8)
        self._column.setSpacing(2)
        self._column.addLayout(head)
        self._column.addWidget(self.question)
        themes.changed.connect(self._on_theme_changed)
        self._on_theme_changed()
        self.refresh()

    def refresh(self) -> None:
        """Shows the end of each answer."""
        texts = list(self._talk.answers.values())
        while len(self.answers) < len(texts):
            label = wrapped_label()
            self.answers.append(label)
            self._column.addWidget(label)
        for label, text in zip(self.answers, texts, strict=True):
            shown = " ".join(text.split())
            short = len(shown) <= _SHOWN_CHARS
            set_text(label, shown if short else "…" + shown[-_SHOWN_CHARS:])

    def _on_theme_changed(self) -> None:
        ratio = self.devicePixelRatioF()
        number = self._talk.conversation.number
        pixmap = mark_pixmap(self._themes.theme, number, Activity.IDLE, ratio)
        self._swatch.setPixmap(pixmap)
