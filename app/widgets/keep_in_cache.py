"""Keeping a conversation's blocks in the cache: by the menu of the window and of its tab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from app.cache_panel.units import megabytes
from app.cache_pins import PinCost, pin_cost
from app.i18n import tr, tr_n
from app.session import Session
from app.session_state import Notice, Severity
from engine.api.errors import ErrorInfo

if TYPE_CHECKING:
    from app.widgets.tab_area import TabArea


def cost_words(cost: PinCost | None) -> str:
    """What keeping a conversation takes."""
    if cost is None:
        return tr("Its blocks are kept from the next answer on.")
    return tr_n(
        "{n} block, {size}, {share} % of the pool.",
        "{n} blocks, {size}, {share} % of the pool.",
        cost.num_blocks,
        size=megabytes(cost.num_bytes / 1e6),
        share=f"{100 * cost.pool_share:.1f}",
    )


def toggle(session: Session, conversation_id: str) -> None:
    """Keeps a conversation or lets it go; a notice tells what keeping it takes."""
    keep = not session.is_kept_in_cache(conversation_id)
    session.keep_in_cache(conversation_id, keep)
    if not keep:
        return
    cost = cost_words(pin_cost(session.conversation(conversation_id), session.model_state.info))
    words = tr("Kept in the cache until you let it go or close the tab. {cost}", cost=cost)
    error = ErrorInfo("kept_in_cache", words)
    session.notice_raised.emit(Notice(Severity.INFO, error, conversation_id))


def add_keep_action(menu: QMenu, session: Session, conversation_id: str) -> QAction:
    """Adds a checkable entry for a conversation."""
    action = menu.addAction(tr("Keep in the cache"))
    action.setCheckable(True)
    action.setChecked(session.is_kept_in_cache(conversation_id))
    action.triggered.connect(lambda _checked: toggle(session, conversation_id))
    return action


class KeepInCache(QObject):
    """The registry's action, for the tab in front. Lives as long as ``area``."""

    def __init__(self, area: TabArea, session: Session, action: QAction) -> None:
        super().__init__(area)
        self._area = area
        self._session = session
        self._action = action
        session.cache_pin_changed.connect(self._check)
        area.current_changed.connect(self._check)
        self._check()

    def toggle(self) -> None:
        """Keeps the conversation in front, or lets it go."""
        current = self._area.tabs.current_id()
        if current:
            toggle(self._session, current)

    def _check(self, _conversation_id: str = "") -> None:
        self._action.setChecked(self._session.is_kept_in_cache(self._area.tabs.current_id()))
