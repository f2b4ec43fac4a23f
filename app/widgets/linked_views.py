"""Transcript and cache panel point at each other: a message at its blocks, a block at its text."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QObject, QTimer, Slot

from app.bridge import Bridge
from app.cache_panel import units
from app.cache_panel.names import SessionNames
from app.cache_panel.panel import CachePanel
from app.conversation import Conversation, new_id
from app.i18n import tr
from app.session import Session
from app.widgets.conversation_page import ConversationPage
from app.widgets.pages import Pages
from engine.api.commands import EditCost
from engine.api.events import EditCostReady, Event, RequestFinished, RequestQueued

SETTLE_MS = 120
"""The mouse crosses messages on its way; only one on which it stays is asked about."""


class LinkedViews(QObject):
    """While the panel is hidden this does nothing, and lets nothing be computed."""

    def __init__(
        self,
        pages: Pages,
        panel: CachePanel,
        session: Session,
        bridge: Bridge,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._pages = pages
        self._panel = panel
        self._session = session
        self._bridge = bridge
        self._names = SessionNames(session)
        self._message = ("", "")
        self._query_id = ""
        self._prompt_tokens: dict[str, int] = {}
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SETTLE_MS)
        self._timer.timeout.connect(self._show_message)
        for page in pages:
            self._follow(page)
        pages.page_made.connect(self._follow)
        panel.made.connect(self._on_panel_made)
        if panel.live is not None:
            self._on_panel_made()
        bridge.engine_event.connect(self._on_bridge_engine_event)

    def _follow(self, page: ConversationPage) -> None:
        slot: Callable[[str], None] = partial(self._on_message_pointed, page.conversation_id)
        page.transcript.message_pointed.connect(slot)

    @property
    def _is_seen(self) -> bool:
        live = self._panel.live
        return live is not None and live.isVisible() and live.model is not None

    # --- a message is pointed at ---

    def _on_message_pointed(self, conversation_id: str, message_id: str) -> None:
        if not self._is_seen:
            self._message = ("", "")
            return
        if message_id:
            self._message = (conversation_id, message_id)
            self._timer.start()
        elif self._message != ("", ""):
            self._message = ("", "")
            self._timer.stop()
            self._query_id = ""
            self._light_blocks(frozenset())
            self._say("")

    @Slot()
    def _show_message(self) -> None:
        conversation_id, message_id = self._message
        live = self._panel.live
        if live is None or live.model is None or not self._is_seen:
            return
        conversation = self._conversation(conversation_id)
        if conversation is None or message_id not in conversation.messages:
            return
        self._light_message(conversation, message_id, 0)
        self._ask_cost(conversation, message_id)

    def _light_message(self, conversation: Conversation, message_id: str, start: int) -> None:
        """``start``: where its own text begins, if that is known better."""
        from app.cache_panel.token_ranges import TokenRange, blocks_of_message, token_ranges

        live = self._panel.live
        assert live is not None
        assert live.model is not None
        conversation_id = conversation.conversation_id
        known = token_ranges(conversation, self._prompt_tokens.get(conversation_id, 0))
        tokens = known.get(message_id)
        if tokens is None:
            self._light_blocks(frozenset())
            return
        tokens = TokenRange(min(max(tokens.start, start), tokens.end), tokens.end)
        self._light_blocks(blocks_of_message(live.model, conversation_id, tokens))

    def _light_blocks(self, blocks: frozenset[int]) -> None:
        live = self._panel.live
        if live is not None:
            live.view.light(blocks)

    def _ask_cost(self, conversation: Conversation, message_id: str) -> None:
        messages = conversation.chat_messages()
        path = [message.message_id for message in conversation.path()]
        if message_id not in path:
            return
        index = path.index(message_id) + len(messages) - len(path)
        self._query_id = new_id()
        self._bridge.send(
            EditCost(
                conversation.conversation_id,
                messages,
                index,
                conversation.context(),
                command_id=self._query_id,
            )
        )

    def _show_cost(self, cost: EditCostReady) -> None:
        conversation_id, message_id = self._message
        conversation = self._conversation(conversation_id)
        if conversation is None or not self._is_seen:
            return
        self._light_message(conversation, message_id, cost.kept_tokens)
        self._say(cost_words(cost))

    def _say(self, text: str) -> None:
        live = self._panel.live
        if live is not None:
            live.view.show_note(text)

    def _conversation(self, conversation_id: str) -> Conversation | None:
        try:
            return self._session.conversation(conversation_id)
        except KeyError:
            return None

    # --- a block is pointed at ---

    @Slot()
    def _on_panel_made(self) -> None:
        live = self._panel.live
        assert live is not None
        live.view.block_pointed.connect(self._on_block_pointed)
        live.block_text_found.connect(self._on_block_text_found)

    def _on_block_pointed(self, _block_id: int) -> None:
        self._light_texts({})

    def _on_block_text_found(self, block_id: int, text: str) -> None:
        """Lights the block's text in each conversation that has it."""
        from app.cache_panel.token_ranges import positions_of_block, token_ranges

        live = self._panel.live
        model = None if live is None else live.model
        if model is None:
            return
        lit: dict[str, str] = {}
        for conversation_id, start in positions_of_block(model, block_id).items():
            conversation = self._conversation(conversation_id)
            if conversation is None:
                continue
            end = start + max(1, int(model.fill[block_id]))
            ranges = token_ranges(conversation, self._prompt_tokens.get(conversation_id, 0))
            for message_id, tokens in ranges.items():
                if tokens.start < end and tokens.end > start:
                    lit[message_id] = text
        self._light_texts(lit)

    def _light_texts(self, lit: dict[str, str]) -> None:
        for page in self._pages:
            page.transcript.light(lit)

    # --- what the engine tells ---

    @Slot(object)
    def _on_bridge_engine_event(self, event: Event) -> None:
        match event:
            case RequestQueued():
                self._prompt_tokens[event.conversation_id] = event.prompt_tokens
            case RequestFinished():
                self._prompt_tokens.pop(event.conversation_id, None)
            case EditCostReady(command_id=self._query_id):
                self._query_id = ""
                self._show_cost(event)


def cost_words(cost: EditCostReady) -> str:
    """What editing a message would cost."""
    if not cost.invalidated_blocks:
        return tr("Editing this message costs nothing: nothing of it is computed yet.")
    blocks = units.blocks(cost.invalidated_blocks)
    if cost.recompute_s <= 0:
        return tr("Editing this message invalidates {blocks}.", blocks=blocks)
    return tr(
        "Editing this message invalidates {blocks} ≈ {time} of prefill.",
        blocks=blocks,
        time=units.seconds(cost.recompute_s),
    )
