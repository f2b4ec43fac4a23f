"""All tabs in a list, for when there are more than the row shows."""

from __future__ import annotations

from PySide6.QtCore import QPoint
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QMenu, QWidget

from app.i18n import tr
from app.theme import ThemeManager
from app.widgets.buttons import IconButton
from app.widgets.swatch import swatch_pixmap
from app.widgets.tab_bar import ConversationTabs


class TabListButton(IconButton):
    """Opens a menu with every tab; arrow keys, first letters and the mouse choose one."""

    def __init__(
        self, themes: ThemeManager, tabs: ConversationTabs, parent: QWidget | None = None
    ) -> None:
        super().__init__(themes, "chevron", tr("All tabs"), parent, "muted")
        self._tabs = tabs
        self.menu_shown: QMenu | None = None
        self.clicked.connect(self.open_list)

    def open_list(self) -> None:
        """Opens the list with the tab in front marked."""
        menu = QMenu(self)
        menu.aboutToHide.connect(menu.deleteLater)
        tabs = self._tabs
        for index in range(tabs.count()):
            name = tabs.accessibleTabName(index).replace("&", "&&")
            pixmap = swatch_pixmap(
                self._themes.theme, tabs.number_of(index), self.devicePixelRatioF()
            )
            action = menu.addAction(QIcon(pixmap), name)
            action.setData(index)
            action.triggered.connect(lambda _checked=False, i=index: tabs.setCurrentIndex(i))
            if index == tabs.currentIndex():
                menu.setActiveAction(action)
        self.menu_shown = menu
        menu.popup(self.mapToGlobal(QPoint(0, self.height())))
