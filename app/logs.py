"""The log file of a profile, and what happens to errors nobody caught. No chat text goes in."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

from engine.api.files import replace_file

MAX_LOG_BYTES = 1_000_000
REPEAT_S = 10.0
"""The same error in the window's thread is told again after so long."""
_HANDLER_NAME = "quire-log"
_LOG = logging.getLogger(__name__)
_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}

ReportUncaught = Callable[[str, str], None]
"""Called with the name of the thread and one line that says what happened; on any thread."""


def open_log(log_file: Path) -> None:
    """Logs to ``log_file`` from now on; a file that grew too long is kept once as ``….1``.

    A log that cannot be written is no reason not to start: the messages then go to stderr.
    """
    handler: logging.Handler
    try:
        if log_file.exists() and log_file.stat().st_size > MAX_LOG_BYTES:
            # Somebody may be reading it: then it grows on, and the next start tries again.
            with suppress(OSError):
                replace_file(log_file, log_file.with_name(log_file.name + ".1"))
        handler = logging.FileHandler(log_file, encoding="utf-8", delay=False)
    except OSError as error:
        handler = logging.StreamHandler(sys.stderr)
        _LOG.warning("no log file: %s", error)
    handler.set_name(_HANDLER_NAME)
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s")
    )
    # A full disk must not fill stderr with tracebacks of the log itself.
    logging.raiseExceptions = False
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    qInstallMessageHandler(_on_qt_message)


def log_file() -> Path | None:
    """The file that is logged to, or None."""
    for handler in logging.getLogger().handlers:
        if handler.name == _HANDLER_NAME and isinstance(handler, logging.FileHandler):
            return Path(handler.baseFilename)
    return None


def close_log() -> None:
    """Undoes ``open_log``; Qt's messages go to stderr again."""
    qInstallMessageHandler(None)
    root = logging.getLogger()
    for handler in list(root.handlers):
        if handler.name == _HANDLER_NAME:
            root.removeHandler(handler)
            handler.close()


class _Recent:
    """The errors told in the last ``REPEAT_S``.

    What fails while it is drawn, or at each piece of an answer, fails many times a second.
    """

    def __init__(self) -> None:
        self._told_at: dict[str, float] = {}

    def add(self, lines: str) -> bool:
        """False if it is among them already."""
        now = time.monotonic()
        self._told_at = {each: at for each, at in self._told_at.items() if now - at < REPEAT_S}
        is_new = lines not in self._told_at
        if is_new:
            self._told_at[lines] = now
        return is_new


def catch_uncaught(report: ReportUncaught) -> None:
    """Logs exceptions that nobody caught, in any thread, and hands one line to ``report``."""
    recent = _Recent()

    def on_exception(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if issubclass(kind, KeyboardInterrupt):
            return
        _forget_last_error()
        lines = "".join(traceback.format_exception(kind, error, trace))
        if recent.add(lines):
            _log_uncaught("main", lines)
            report("main", _one_line(error))

    def on_thread_exception(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is None or issubclass(args.exc_type, SystemExit):
            return
        name = "" if args.thread is None else args.thread.name
        lines = traceback.format_exception(args.exc_type, args.exc_value, args.exc_traceback)
        _log_uncaught(name, "".join(lines))
        report(name, _one_line(args.exc_value))

    sys.excepthook = on_exception
    threading.excepthook = on_thread_exception


def _log_uncaught(thread: str, lines: str) -> None:
    _LOG.error("uncaught in thread %s\n%s", thread, lines)
    # A windowed build on Windows has no stderr; that of others may be closed by now.
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(lines)


def _forget_last_error() -> None:
    """Python keeps it for a debugger, with all frames that it went through: widgets, too, which
    would outlive their window and Qt.
    """
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        vars(sys).pop(name, None)


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _on_qt_message(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
    logging.getLogger("qt").log(
        _LEVELS.get(kind, logging.WARNING), "%s: %s", context.category, message
    )
