"""What is done with conversations from the side bar: filing, deleting, exporting, in its menu, by
dragging and by the registry's actions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QObject, QPoint
from PySide6.QtWidgets import QMenu, QMessageBox

from app.i18n import tr, tr_n
from app.models import groups
from app.models.conversations import Row
from app.models.groups import Group
from app.session import Session
from app.widgets.conversation_list import has_keyboard
from app.widgets.sidebar import SideBar
from app.widgets.tab_area import TabArea
from app.widgets.transfers import JSON, MARKDOWN, Transfers

_MAX_TABS_AT_ONCE = 20


class Shelf(QObject):
    """Acts on what is selected in the side bar's list while the keyboard is there, and otherwise on
    the conversation in front.
    """

    def __init__(self, session: Session, bar: SideBar, area: TabArea, transfers: Transfers) -> None:
        super().__init__(bar)
        self._session = session
        self._bar = bar
        self._area = area
        self._transfers = transfers
        self.menu: QMenu | None = None
        model = bar.model
        bar.list.menu_requested.connect(self._on_list_menu_requested)
        model.dropped.connect(self._on_model_dropped)
        model.renamed.connect(session.rename)
        model.folder_renamed.connect(self._on_model_folder_renamed)
        session.conversations_deleted.connect(self._on_session_conversations_deleted)

    def handlers(self) -> dict[str, Callable[[], object]]:
        """What the registry's actions about conversations do."""
        return {
            "rename": self.rename,
            "pin": self.toggle_pinned,
            "move_to_folder": self.choose_folder,
            "archive": self.toggle_archived,
            "delete_conversation": self.delete,
            "undo_delete": self.undo_delete,
            "export_markdown": lambda: self._transfers.export(self.targets(), MARKDOWN),
            "export_json": lambda: self._transfers.export(self.targets(), JSON),
            "export_all": lambda: self._transfers.export_all(),
        }

    def targets(self) -> list[str]:
        """Ids of the conversations that an action is about."""
        if has_keyboard(self._bar.list):
            rows = self._bar.list.selected_rows()
            return [row.conversation_id for row in rows if row.group != groups.DELETED]
        return [self._area.tabs.current_id()]

    def rename(self) -> None:
        """Opens a text box over the title in the list or over the tab."""
        if has_keyboard(self._bar.list):
            self._bar.list.edit_entry(self._bar.list.currentIndex())
        else:
            self._area.tabs.start_rename(self._area.tabs.current_id())

    def toggle_pinned(self) -> None:
        """Pins what is not pinned; if all is, none is any more."""
        ids = self.targets()
        pinned = {s.conversation_id for s in self._session.closed_conversations() if s.pinned}
        open_ids = self._session.conversation_ids()
        pinned.update(i for i in open_ids if self._session.conversation(i).pinned)
        self._session.set_pinned(ids, not pinned.issuperset(ids))

    def toggle_archived(self) -> None:
        """Archives what is not archived; if all is, none is any more."""
        ids = self.targets()
        archived = {s.conversation_id for s in self._session.closed_conversations() if s.archived}
        self._session.set_archived(ids, not archived.issuperset(ids))

    def delete(self) -> None:
        """Deletes with a way back."""
        self._delete(self.targets())

    def undo_delete(self) -> None:
        """Brings back what was deleted last."""
        deletion = self._session.last_deletion
        if self._session.undo_delete_conversations() and deletion is not None:
            self._bar.model.reload()
            self._bar.list.mark(deletion.conversation_ids[0])

    def choose_folder(self) -> None:
        """Offers the folders in a menu."""
        ids = self.targets()
        if ids:
            menu = self._new_menu()
            self._fill_folders(menu, ids)
            menu.popup(self._bar.mapToGlobal(QPoint(24, 64)))

    # --- menus ---

    def _on_list_menu_requested(self, point: QPoint) -> None:
        view, model = self._bar.list, self._bar.model
        entry = model.entry(view.indexAt(point))
        menu = self._new_menu()
        if isinstance(entry, Group):
            self._fill_for_group(menu, entry)
        elif entry is not None:
            rows = view.selected_rows()
            rows = rows if entry in rows else [entry]
            if all(row.group == groups.DELETED for row in rows):
                self._fill_for_deleted(menu, [row.conversation_id for row in rows])
            else:
                self._fill(menu, [row for row in rows if row.group != groups.DELETED])
        if menu.actions():
            menu.popup(view.viewport().mapToGlobal(point))

    def _new_menu(self) -> QMenu:
        menu = QMenu(self._bar)
        menu.aboutToHide.connect(menu.deleteLater)
        self.menu = menu
        return menu

    def _fill(self, menu: QMenu, rows: list[Row]) -> None:
        ids = [row.conversation_id for row in rows]
        session = self._session
        if len(ids) == 1:
            menu.addAction(tr("Open"), partial(self._bar.conversation_chosen.emit, ids[0]))
            if ids[0] != self._area.tabs.current_id():
                menu.addAction(tr("Show beside"), partial(self._area.sides.show_beside, ids[0]))
            index = self._bar.model.index_of(ids[0])
            menu.addAction(tr("Rename"), partial(self._bar.list.edit_entry, index))
        else:
            words = tr_n("Open {n} tab", "Open {n} tabs", len(ids))
            action = menu.addAction(words, partial(self._open_all, ids))
            action.setEnabled(len(ids) <= _MAX_TABS_AT_ONCE)
        menu.addSeparator()
        pinned = all(row.group == groups.PINNED for row in rows)
        archived = all(row.group == groups.ARCHIVED for row in rows)
        menu.addAction(
            tr("Unpin") if pinned else tr("Pin"), partial(session.set_pinned, ids, not pinned)
        )
        self._fill_folders(menu.addMenu(tr("Move to folder")), ids)
        menu.addAction(
            tr("Take out of the archive") if archived else tr("Archive"),
            partial(session.set_archived, ids, not archived),
        )
        menu.addSeparator()
        for text, form in (
            (tr("Export as Markdown…"), MARKDOWN),
            (tr("Export as JSON…"), JSON),
        ):
            menu.addAction(text, partial(self._transfers.export, ids, form))
        menu.addSeparator()
        open_ids = [row.conversation_id for row in rows if row.is_open]
        if open_ids:
            menu.addAction(tr("Close"), partial(self._close_all, open_ids))
        menu.addAction(tr("Delete"), partial(self._delete, ids))

    def _fill_folders(self, menu: QMenu, ids: list[str]) -> None:
        menu.addAction(tr("New folder"), partial(self._move_to_new, ids))
        menu.addAction(tr("No folder"), partial(self._session.set_folder, ids, ""))
        folders = self._session.folders()
        if folders:
            menu.addSeparator()
        for folder in folders:
            text = folder.replace("&", "&&")
            menu.addAction(text, partial(self._move, ids, folder))

    def _fill_for_group(self, menu: QMenu, group: Group) -> None:
        collapse = partial(self._bar.model.set_collapsed, group.key, not group.is_collapsed)
        menu.addAction(tr("Expand") if group.is_collapsed else tr("Collapse"), collapse)
        if group.folder:
            index = self._bar.model.index_of_group(group.key)
            menu.addAction(tr("Rename folder"), partial(self._bar.list.edit_entry, index))
            menu.addAction(
                tr("Dissolve folder"), partial(self._session.rename_folder, group.folder, "")
            )
        if group.key == groups.DELETED:
            ids = [s.conversation_id for s in self._session.deleted_conversations()]
            menu.addAction(tr("Delete all for good…"), partial(self._ask_to_erase, ids))

    def _fill_for_deleted(self, menu: QMenu, ids: list[str]) -> None:
        menu.addAction(tr("Restore"), partial(self._session.restore_conversations, ids))
        menu.addAction(tr("Delete for good…"), partial(self._ask_to_erase, ids))

    # --- doing ---

    def _open_all(self, ids: list[str]) -> None:
        for conversation_id in ids:
            self._area.show_conversation(conversation_id)

    def _close_all(self, ids: list[str]) -> None:
        for conversation_id in ids:
            self._area.close_conversation(conversation_id)

    def _delete(self, ids: list[str]) -> None:
        if ids:
            self._session.delete_conversations(ids)

    def _move(self, ids: list[str], folder: str) -> None:
        self._session.set_folder(ids, folder)
        self._bar.model.set_collapsed(groups.FOLDER + folder, False)

    def _move_to_new(self, ids: list[str]) -> None:
        """Into a folder of its own, whose name is asked for in the list."""
        folders = {folder.casefold() for folder in self._session.folders()}
        names = (tr("New folder"), *(f"{tr('New folder')} {n}" for n in range(2, 1000)))
        name = next(name for name in names if name.casefold() not in folders)
        self._move(ids, name)
        self._bar.show()
        self._bar.model.reload()
        self._bar.list.edit_entry(self._bar.model.index_of_group(groups.FOLDER + name))

    def _on_model_dropped(self, ids: list[str], group: str) -> None:
        session = self._session
        if group == groups.DELETED:
            self._delete(ids)
            return
        # Rows of "Deleted" are dragged too.
        session.restore_conversations(ids)
        if group == groups.ARCHIVED:
            session.set_archived(ids, True)
        elif group == groups.PINNED:
            session.set_pinned(ids, True)
        elif group == groups.OPEN:
            self._open_all(ids[:_MAX_TABS_AT_ONCE])
        else:
            session.set_archived(ids, False)
            session.set_pinned(ids, False)
            session.set_folder(ids, group.removeprefix(groups.FOLDER) if ":" in group else "")

    def _on_model_folder_renamed(self, folder: str, name: str) -> None:
        if name.strip():
            self._session.rename_folder(folder, name)

    def _on_session_conversations_deleted(self) -> None:
        deletion = self._session.last_deletion
        if deletion is None:
            self._bar.undo_bar.hide()
            return
        count = len(deletion.conversation_ids)
        words = tr_n("{n} deleted", "{n} deleted", count)
        self._bar.undo_bar.offer(words, self.undo_delete)

    def _ask_to_erase(self, ids: list[str]) -> None:
        # Not of the side bar, whose style its buttons would take.
        box = QMessageBox(self._bar.window())
        box.setObjectName("erase_box")
        box.setIcon(QMessageBox.Icon.NoIcon)
        box.setWindowTitle(tr("Delete for good"))
        box.setText(
            tr_n(
                "Delete {n} conversation for good? This cannot be undone.",
                "Delete {n} conversations for good? This cannot be undone.",
                len(ids),
            )
        )
        erase = box.addButton(tr("Delete for good"), QMessageBox.ButtonRole.DestructiveRole)
        cancel = box.addButton(QMessageBox.StandardButton.Cancel)
        box.setDefaultButton(cancel)
        box.setEscapeButton(cancel)
        erase.clicked.connect(lambda: self._session.erase_conversations(ids))
        box.finished.connect(box.deleteLater)
        box.open()
