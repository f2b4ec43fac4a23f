"""Conversations in the side bar that are filed there, and what tests do with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from PySide6.QtCore import QItemSelectionModel
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu

from app.conversation import ASSISTANT, USER, Conversation, Message
from tests.helpers.window_stage import Stage, window_stage

FLAG = QItemSelectionModel.SelectionFlag


@contextmanager
def active_stage(qtbot) -> Iterator[Stage]:
    """A window that has the keyboard."""
    with window_stage(qtbot) as made:
        qtbot.waitUntil(made.window.isActiveWindow)
        yield made


def conversation(title: str) -> Conversation:
    new = Conversation(title=title, title_is_automatic=False, is_open=False)
    new.append(Message(USER, f"question of {title}"))
    new.append(Message(ASSISTANT, "answer"))
    return new


def stored(stage: Stage, *titles: str) -> list[str]:
    """Stores closed conversations with these titles; their ids."""
    conversations = [conversation(title) for title in titles]
    assert stage.session.store_imported(conversations)
    stage.session.stored_changed.emit()
    stage.window.side_bar.model.reload()
    return [new.conversation_id for new in conversations]


def select(stage: Stage, *ids: str) -> None:
    view, model = stage.window.side_bar.list, stage.window.side_bar.model
    view.setFocus()
    # Not the view's own way: it asks which keys are held, and an earlier test may have left some.
    view.selectionModel().setCurrentIndex(model.index_of(ids[0]), FLAG.ClearAndSelect)
    for conversation_id in ids[1:]:
        view.selectionModel().select(model.index_of(conversation_id), FLAG.Select)


def menu_at(stage: Stage, index) -> QMenu:
    view = stage.window.side_bar.list
    view.menu_requested.emit(view.visualRect(index).center())
    menu = stage.window.shelf.menu
    assert menu is not None
    return menu


def entry(menu: QMenu, text: str) -> QAction:
    return next(action for action in menu.actions() if action.text() == text)


def texts(menu: QMenu) -> list[str]:
    return [action.text() for action in menu.actions() if action.text()]


def label(stage: Stage, conversation_id: str, name: str) -> object:
    summaries = stage.session.closed_conversations()
    return getattr(next(s for s in summaries if s.conversation_id == conversation_id), name)


def closed_ids(stage: Stage) -> set[str]:
    return {s.conversation_id for s in stage.session.closed_conversations()}
