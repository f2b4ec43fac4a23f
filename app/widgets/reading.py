"""The actions of reading: find in page, zoom, print, copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtGui import QGuiApplication

from app.conversation import Conversation
from app.exporting import file_name, to_markdown
from app.i18n import tr
from app.session import Session
from app.theme import ThemeManager
from app.widgets.print_jobs import PrintJobs
from app.widgets.transcript.copying import copy_markdown
from app.widgets.transcript.view import Transcript
from app.widgets.words import shown_title
from app.zoom import NORMAL, stepped, zoom_of

if TYPE_CHECKING:
    from app.widgets.tab_area import TabArea

_ZOOM = "zoom"


class Reading(QObject):
    """Acts on the transcript in front. The zoom is one for all, and kept."""

    def __init__(self, area: TabArea, session: Session, themes: ThemeManager) -> None:
        super().__init__(area)
        self._area = area
        self._session = session
        self._themes = themes
        self.jobs = PrintJobs(session, area.window())
        area.put_under_tabs(self.jobs.bar)
        themes.set_zoom(zoom_of(session.window_state(_ZOOM)))
        themes.zoom_changed.connect(self._keep_zoom)

    def handlers(self) -> dict[str, Callable[[], object]]:
        """What each action does, by its id."""
        return {
            "find": self._on_transcript(lambda view: view.content.find_bar.start()),
            "find_next": self._on_transcript(lambda view: view.content.find_bar.step(1)),
            "find_previous": self._on_transcript(lambda view: view.content.find_bar.step(-1)),
            "print": self._print,
            "export_pdf": self._export_pdf,
            "copy_markdown": self._on_transcript(copy_markdown),
            "copy_conversation": self._copy_conversation,
            "zoom_in": lambda: self._themes.set_zoom(stepped(self._themes.zoom, 1)),
            "zoom_out": lambda: self._themes.set_zoom(stepped(self._themes.zoom, -1)),
            "zoom_reset": lambda: self._themes.set_zoom(NORMAL),
        }

    def _on_transcript(self, act: Callable[[Transcript], None]) -> Callable[[], None]:
        """A slot for the transcript in front, if it shows anything."""

        def slot() -> None:
            page = self._area.current_page
            if page is not None and page.transcript.items:
                act(page.transcript)

        return slot

    def _conversation(self) -> Conversation | None:
        """The one in front, if there is anything in it."""
        page = self._area.current_page
        return page.conversation if page is not None and page.transcript.items else None

    def _print(self) -> None:
        page, conversation = self._area.current_page, self._conversation()
        if page is not None and conversation is not None:
            self.jobs.choose_printer(page.transcript, shown_title(conversation.title))

    def _export_pdf(self) -> None:
        page, conversation = self._area.current_page, self._conversation()
        if page is not None and conversation is not None:
            name = file_name(conversation, ".pdf")
            self.jobs.choose_pdf(page.transcript, shown_title(conversation.title), name)

    def _copy_conversation(self) -> None:
        conversation = self._conversation()
        if conversation is not None:
            text = to_markdown(conversation, tr("You"), tr("Answer"))
            QGuiApplication.clipboard().setText(text)

    def _keep_zoom(self) -> None:
        self._session.set_window_state(_ZOOM, f"{self._themes.zoom:g}")
