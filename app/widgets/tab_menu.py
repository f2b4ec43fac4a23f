"""What the menu of a tab offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QMenu

from app.i18n import tr
from app.session import Session
from app.widgets.keep_in_cache import add_keep_action
from app.widgets.overflow_menu import add_overflow_menu

if TYPE_CHECKING:
    from app.widgets.tab_area import TabArea


def fill_tab_menu(menu: QMenu, area: TabArea, session: Session, chosen: str) -> None:
    """Adds what can be done with the tab of ``chosen``, and with the others."""
    count = area.tabs.count()
    menu.addAction(tr("Fork"), lambda: session.fork(chosen))
    if chosen != area.tabs.current_id():
        menu.addAction(tr("Show beside"), lambda: area.sides.show_beside(chosen))
    add_overflow_menu(menu, session, chosen)
    add_keep_action(menu, session, chosen)
    menu.addSeparator()
    menu.addAction(tr("Close"), lambda: area.close_conversation(chosen))
    others = menu.addAction(tr("Close others"), lambda: area.close_others(chosen))
    others.setEnabled(count > 1)
    right = menu.addAction(tr("Close to the right"), lambda: area.close_others(chosen, True))
    right.setEnabled(area.tabs.index_of(chosen) < count - 1)
    menu.addAction(tr("Reopen closed tab"), area.reopen_last)
