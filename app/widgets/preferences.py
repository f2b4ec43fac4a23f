"""What the user sets about the window, and the windows beside it where that is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Qt, Slot

from app.bridge import Bridge
from app.engine_settings import EngineSettings
from app.i18n import Language
from app.notifications import DesktopNotifier, application_is_active
from app.session import Session
from app.settings import Settings, Values
from app.theme import DARK, LIGHT, Appearance, ThemeManager
from app.widgets.answer_notices import AnswerNotices
from app.widgets.built_window import BuiltWindow
from app.widgets.report import Report
from app.widgets.settings.target import SamplingTarget
from engine.api.errors import ErrorInfo

if TYPE_CHECKING:
    from app.widgets.main_window import MainWindow
    from app.widgets.settings.window import SettingsWindow

_APPEARANCE = frozenset({"font_family", "code_font_family", "font_size", "density"})


class Preferences(QObject):
    """Follows the settings: theme, fonts, language and keys change in the open window.

    Lives as long as ``window``, and longer than its parts.
    """

    def __init__(
        self,
        window: MainWindow,
        session: Session,
        bridge: Bridge,
        settings: Settings,
        language: Language | None,
    ) -> None:
        """``language``: the installed one; None leaves the texts as they are."""
        super().__init__()
        self._window = window
        self._session = session
        self._settings = settings
        self._themes: ThemeManager = window.themes
        self._language = language
        self._open: dict[str, BuiltWindow] = {}
        self.engine = EngineSettings(session, bridge, settings, self)
        self._report = Report(session, bridge, settings, window)
        self.notifier = DesktopNotifier(window)
        self.notifier.clicked.connect(self._on_notifier_clicked)
        self._notices = AnswerNotices(session, settings, self.notifier, application_is_active)
        session.settings_changed.connect(self._on_session_settings_changed)

    def handlers(self) -> dict[str, Callable[[], object]]:
        """Slots by the id of their action."""
        change = self._session.change_settings
        return {
            "theme_system": lambda: change(theme="system"),
            "theme_light": lambda: change(theme=LIGHT),
            "theme_dark": lambda: change(theme=DARK),
            "toggle_theme": lambda: change(theme=LIGHT if self._themes.theme.dark else DARK),
            "language_system": lambda: change(language="system"),
            "language_en": lambda: change(language="en"),
            "language_zh_CN": lambda: change(language="zh_CN"),
            "settings": self.show_settings,
            "shortcuts": self.show_shortcuts,
            "sampling": self.show_sampling,
            "help": self.show_help,
            "about": self.show_about,
            "diagnostics": self.show_diagnostics,
        }

    def check_actions(self) -> None:
        """Brings the menu in line with the settings."""
        values = self._settings.values
        self._window.actions_registry.check("theme", values.theme)
        self._window.actions_registry.check("language", values.language)

    def report_shortcuts(self) -> None:
        """Adds the keys in the settings file that were not used to what is wrong with it."""
        for name in self._window.actions_registry.refused_shortcuts:
            keys = ", ".join(self._settings.values.shortcuts[name])
            reason = f"shortcuts.{name} = {keys!r}: no such action, or keys that another one has"
            self._settings.problems.append(
                ErrorInfo(
                    "invalid_setting",
                    f"A setting was not used: {reason}",
                    "Correct it in the settings file, or change it in the window.",
                    (("name", f"shortcuts.{name}"), ("value", keys), ("reason", reason)),
                )
            )

    def show_settings(self) -> SettingsWindow:
        """Opens the settings, where they were left."""
        from app.widgets.settings.window import SettingsWindow

        def make() -> BuiltWindow:
            window = self._window
            registry = lambda: window.actions_registry  # noqa: E731 - it is made anew at times
            return SettingsWindow(
                self._session, self._settings, self._themes, self.engine, registry, window
            )

        shown = self.show("settings", make)
        assert isinstance(shown, SettingsWindow)
        return shown

    def show_shortcuts(self) -> SettingsWindow:
        """Opens the settings at the list of shortcuts."""
        from app.widgets.settings.window import SHORTCUTS

        shown = self.show_settings()
        shown.show_section(SHORTCUTS)
        return shown

    def show_sampling(self, conversation_id: str = "") -> None:
        """Opens the sampling of an open conversation; empty for the one in front."""
        from app.widgets.settings.sampling_window import SamplingWindow

        conversation_id = conversation_id or self._session.active_conversation_id
        if conversation_id in self._session.conversation_ids():
            target = SamplingTarget(self._session, self._settings, conversation_id)
            self.show(
                f"sampling {conversation_id}",
                lambda: SamplingWindow(
                    self._session, self._themes, target, conversation_id, self._window
                ),
            )

    def show_help(self) -> None:
        """Opens the help page."""
        from app.widgets.help_window import HelpWindow

        self.show("help", lambda: HelpWindow(self._themes, self._language, self._window))

    def show_about(self) -> None:
        """Opens versions and licences."""
        from app.widgets.about_window import AboutWindow

        self.show("about", lambda: AboutWindow(self._themes, self._window))

    def show_diagnostics(self) -> None:
        """Opens what a report of a fault would hold."""
        from app.widgets.diagnostics_window import DiagnosticsWindow

        self.show("diagnostics", lambda: DiagnosticsWindow(self._report.entries, self._window))

    def show(self, name: str, make: Callable[[], BuiltWindow]) -> BuiltWindow:
        """Brings the window ``name`` to the front, made by ``make`` if it is not open."""
        found = self._open.get(name)
        if found is None:
            found = self._open[name] = make()
            found.destroyed.connect(lambda: self._open.pop(name, None))
        found.present()
        return found

    def rebuild_windows(self) -> None:
        """Makes the windows beside the main one anew."""
        for window in list(self._open.values()):
            window.rebuild()

    @Slot(str)
    def _on_notifier_clicked(self, conversation_id: str) -> None:
        window = self._window
        if conversation_id in self._session.conversation_ids():
            window.show_conversation(conversation_id)
        window.setWindowState(window.windowState() & ~Qt.WindowState.WindowMinimized)
        window.show()
        window.raise_()
        window.activateWindow()

    @Slot(object)
    def _on_session_settings_changed(self, names: frozenset[str]) -> None:
        values = self._settings.values
        if "theme" in names:
            self._themes.set_mode(values.theme)
        if "shortcuts" in names:
            self._window.actions_registry.set_shortcuts(values.shortcuts)
        if "language" in names and self._language is not None:
            self._language.switch_to(values.language)
        if names & _APPEARANCE:
            self._themes.set_appearance(appearance_of(values))
        if names & (_APPEARANCE | {"language"}):
            self._window.rebuilder.request(self.rebuild_windows)
        self.check_actions()


def appearance_of(values: Values) -> Appearance:
    """Fonts and density as the settings have them."""
    return Appearance(values.font_family, values.code_font_family, values.font_size, values.density)
