"""The help page: what paging, sharing and eviction are, and what the cache panel shows."""

from __future__ import annotations

from typing import Any

from PySide6.QtCore import QSize, Qt, QUrl
from PySide6.QtGui import QTextDocument
from PySide6.QtWidgets import QTextBrowser, QVBoxLayout, QWidget

from app import assets, theme
from app.i18n import Language, tr
from app.theme import ThemeManager
from app.widgets.built_window import BuiltWindow

_SIZE = QSize(720, 720)
_SAMPLE_SIDE = 22
_SCHEME = "legend"


class HelpWindow(BuiltWindow):
    """Shows ``resources/help`` in the language of the window."""

    def __init__(self, themes: ThemeManager, language: Language | None, parent: QWidget) -> None:
        super().__init__(parent, _SIZE)
        self._themes = themes
        self._language = language
        themes.changed.connect(self.rebuild)
        self.rebuild()

    def build(self) -> QWidget:
        self.setWindowTitle(tr("Help"))
        code = "en" if self._language is None else self._language.code
        self.browser = HelpBrowser(self._themes)
        self.browser.setObjectName("help text")
        self.browser.setAccessibleName(tr("Help"))
        self.browser.show_page(code)
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 0)
        column.addWidget(self.browser)
        return content


class HelpBrowser(QTextBrowser):
    """Loads nothing but samples of the cache panel's legend, which the panel's painter draws."""

    def __init__(self, themes: ThemeManager) -> None:
        super().__init__()
        # Imported late: it needs numpy.
        from app.cache_panel.legend import legend_images

        self._samples = legend_images(themes.theme, _SAMPLE_SIDE, self.devicePixelRatioF())
        self.setOpenLinks(False)
        self.setFont(theme.body_font())
        self.setFrameShape(QTextBrowser.Shape.NoFrame)
        self.setProperty("role", "page")
        self.document().setDocumentMargin(24)
        flags = Qt.TextInteractionFlag.TextBrowserInteraction
        self.setTextInteractionFlags(flags | Qt.TextInteractionFlag.TextSelectableByKeyboard)

    def show_page(self, language: str) -> None:
        """Shows the page in ``language``, or the English one if there is none."""
        path = assets.resource_path("help", f"{language}.md")
        if not path.exists():
            path = assets.resource_path("help", "en.md")
        self.document().setDefaultFont(theme.body_font())
        self.setMarkdown(path.read_text(encoding="utf-8"))

    def loadResource(self, kind: int, name: QUrl | str) -> Any:
        url = QUrl(name)
        if kind == QTextDocument.ResourceType.ImageResource.value and url.scheme() == _SCHEME:
            return self._samples.get(url.path())
        return None
