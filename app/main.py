"""The composition root: makes every part once and connects them."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from PySide6.QtCore import QCoreApplication
from PySide6.QtWidgets import QApplication, QMessageBox

from app import logs, paths
from app.app_error import AppError, DataDirectoryInUseError
from app.application import QuireApplication
from app.command_line import Options, parse
from app.early_check import fatal_errors_in_words
from app.error_text import describe_error
from app.garbage import hold_back
from app.i18n import Language, tr
from app.input_method import use_an_input_method_that_is_there
from app.overrides import guard_overrides
from app.paths import Profile
from app.relaunch import relaunch
from app.settings import Settings
from app.store import Store
from app.switch_interval import SWITCH_S
from engine.api.client import EngineClient, start_engine

_LOG = logging.getLogger(__name__)
REFUSED = 3
"""Exit status when the profile cannot be opened."""


def main(
    argv: Sequence[str] | None = None,
    engine: Callable[[], EngineClient] = start_engine,
    start_again: Callable[[], bool] = relaunch,
) -> int:
    """Runs the application and returns its exit status.

    0: ended as asked; 1: the self-test failed; 3: the profile or the recording could not be opened.
    Bad arguments end the process with 2. ``engine`` starts the engine; the default is the one in
    this process. ``start_again`` is called at the very end if the user wants a new process.
    """
    options = parse(sys.argv[1:] if argv is None else argv)
    sys.setswitchinterval(SWITCH_S)
    hold_back()
    guard_overrides()
    # Held here, so that everything that _run makes is gone before Qt is.
    qt = _qt_application()
    if options.trace is not None:
        return _show_trace(qt, options, options.trace)
    if not options.self_test:
        profile = Profile(options.data_dir or paths.data_dir())
        return _run(qt, options, profile, engine, start_again)
    import tempfile

    from app.self_test_report import Report

    if options.json_file is not None:
        # At once, so that a process that dies leaves one too.
        Report().write(options.json_file)
    # Windows keeps the files of a process that was ended hard; the test must not fail for that.
    with tempfile.TemporaryDirectory(prefix="quire-", ignore_cleanup_errors=True) as folder:
        return _run(qt, options, Profile(Path(folder)), engine, start_again)


def _show_trace(qt: QApplication, options: Options, path: Path) -> int:
    """A recording in a window of its own: no engine, no store, and no lock on the profile."""
    from app.cache_panel.trace_window import open_trace

    values = Settings(Profile(options.data_dir or paths.data_dir()).settings_file).values
    Language(values.language).install()
    return open_trace(qt, path, values.theme)


def _run(
    qt: QApplication,
    options: Options,
    profile: Profile,
    engine: Callable[[], EngineClient],
    start_again: Callable[[], bool],
) -> int:
    settings = Settings(profile.settings_file)
    language = Language(settings.values.language)
    language.install()
    try:
        store = Store(profile)
    except DataDirectoryInUseError as error:
        return _leave_to_first(profile, error, quiet=options.self_test)
    except AppError as error:
        return _refuse(error, quiet=options.self_test)
    logs.open_log(profile.log_file)
    application = QuireApplication(options, settings, store, engine, language=language)
    logs.catch_uncaught(application.report_uncaught)
    try:
        if options.self_test:
            from app.self_test import run_self_test

            status = run_self_test(application, options)
        else:
            application.show()
            status = qt.exec()
    finally:
        ended = application.close()
        if application.wants_relaunch:
            # Only now: the new process needs the profile's lock, which has just been given back.
            start_again()
    if not ended:
        # A thread that is loading or computing in C cannot be stopped; everything is saved.
        _LOG.warning("the engine thread was still busy; ending the process")
        logging.shutdown()
        sys.stdout.flush()
        os._exit(status)
    logs.close_log()
    return status


def _qt_application() -> QApplication:
    use_an_input_method_that_is_there(os.environ)
    existing = QApplication.instance()
    if isinstance(existing, QApplication):
        qt = existing
    else:
        with fatal_errors_in_words():
            qt = QApplication(["quire"])
    QCoreApplication.setApplicationName(paths.APP_NAME)
    qt.setApplicationDisplayName(paths.APP_NAME)
    qt.setDesktopFileName("quire")
    return qt


def _leave_to_first(profile: Profile, error: AppError, quiet: bool) -> int:
    """Another process has the profile: its window comes to the front, and this one ends."""
    from app.raise_window import ask_to_raise

    if ask_to_raise(profile.data_dir):
        sys.stderr.write(
            tr("Quire is already open with this profile; its window was raised.") + "\n"
        )
        return 0
    return _refuse(error, quiet)


def _refuse(error: AppError, quiet: bool) -> int:
    cause, action = describe_error(error.info())
    if sys.stderr is not None:
        sys.stderr.write(f"{cause}\n{action}\n")
    # Nobody could answer a message box on a screen that is not there.
    if not quiet and QApplication.platformName() not in ("offscreen", "minimal"):
        box = QMessageBox(QMessageBox.Icon.Critical, paths.APP_NAME, cause)
        box.setInformativeText(action)
        box.exec()
    return REFUSED
