"""The choice of what happens when a conversation's context is full, for its own menu."""

from __future__ import annotations

from PySide6.QtGui import QActionGroup
from PySide6.QtWidgets import QMenu

from app.i18n import tr
from app.session import Session
from engine.api.params import OverflowPolicy


def add_overflow_menu(menu: QMenu, session: Session, conversation_id: str) -> QMenu:
    """Adds a submenu to ``menu`` that shows and changes the policy of an open conversation."""
    submenu = menu.addMenu(tr("When the context is full"))
    group = QActionGroup(submenu)
    present = session.conversation(conversation_id).overflow
    for overflow, text in policy_words().items():
        action = group.addAction(text)
        action.setCheckable(True)
        action.setChecked(overflow is present)
        action.triggered.connect(
            lambda _checked, overflow=overflow: session.set_overflow(conversation_id, overflow)
        )
    submenu.addActions(group.actions())
    return submenu


def policy_words() -> dict[OverflowPolicy, str]:
    """What each policy is called."""
    return {
        OverflowPolicy.STOP: tr("Stop and say so"),
        OverflowPolicy.DROP_OLDEST: tr("Drop the oldest messages"),
    }
