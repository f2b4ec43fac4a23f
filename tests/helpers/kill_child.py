"""The application, driven at random by itself, which writes down what it was told is committed.

``python kill_child.py DATA_DIR JOURNAL SEED``. A line of the journal is a JSON object with ``kind``
and ``at``, seconds of the monotonic clock. What a line promises is on disk before the line is.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import time
import traceback
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
TICK_MS = 12
COMMIT_EVERY = 6
QUIET_CHANCE = 0.03


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]


class Journal:
    """Appended line by line, each in one system call: a killed process leaves no half line."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, kind: str, **values: Any) -> None:
        line = json.dumps({"kind": kind, "at": time.monotonic(), **values})
        os.write(self._file, line.encode() + b"\n")


class Driver:
    """Does something at random at each tick, and commits now and then."""

    def __init__(self, window: Any, journal: Journal, seed: int) -> None:
        from PySide6.QtCore import QTimer

        self.window = window
        self.session = window._session
        self.journal = journal
        self.random = random.Random(seed)
        self.ticks = 0
        self.words = 0
        self.quiet_until_s = 0.0
        # Then nothing but streaming: no other writing takes the growing answers along.
        self.last_tick = self.random.randint(10, 60) if seed % 3 == 0 else 1 << 30
        self.session.text_appended.connect(self._on_text)
        self.session.message_changed.connect(self._on_changed)
        self.timer = QTimer()
        self.timer.timeout.connect(self._tick)
        self.timer.start(TICK_MS)

    def _on_text(self, conversation_id: str, message_id: str, _text: str) -> None:
        message = self.session.conversation(conversation_id).messages.get(message_id)
        if message is not None:
            self.journal.write("text", message=message_id, length=len(message.content))

    def _on_changed(self, conversation_id: str, message_id: str) -> None:
        if conversation_id not in self.session.conversation_ids():
            return
        message = self.session.conversation(conversation_id).messages.get(message_id)
        if message is not None and message.status.value != "streaming":
            self.journal.write("ended", message=message_id)

    def _tick(self) -> None:
        if time.monotonic() < self.quiet_until_s or self.ticks > self.last_tick:
            return
        if self.random.random() < QUIET_CHANCE:
            self.quiet_until_s = time.monotonic() + self.random.uniform(0.3, 1.5)
        try:
            self.ticks += 1
            if self.ticks % COMMIT_EVERY == 0:
                self._commit()
            else:
                self._act()
        except Exception:
            self.journal.write("error", trace=traceback.format_exc())

    def _commit(self) -> None:
        messages, titles = {}, {}
        for conversation_id in self.session.conversation_ids():
            conversation = self.session.conversation(conversation_id)
            titles[conversation_id] = conversation.title
            for message in conversation.messages.values():
                is_done = message.status.value != "streaming"
                length = len(message.content)
                messages[message.message_id] = (
                    conversation_id,
                    is_done,
                    length,
                    digest(message.content),
                )
        if self.session._store.flush():
            self.journal.write("committed", titles=titles, messages=messages)

    def _act(self) -> None:
        session, draw = self.session, self.random
        open_ids = session.conversation_ids()
        chosen = draw.choice(open_ids)
        path = session.conversation(chosen).path()
        message = draw.choice(path) if path else None
        if draw.random() < 0.2 and not session.is_busy(chosen):
            self.window.show_conversation(chosen)
        what = draw.choice(("send",) * 6 + _ACTIONS)
        if what == "new" or len(open_ids) < 3:
            if len(open_ids) < 8:
                self.window.new_tab()
        elif what == "send":
            if not session.is_busy(chosen):
                self.words += 1
                self.window.submit_text(chosen, f"question {self.words} 缓存 {draw.random()}")
        elif what == "draft":
            session.set_draft(chosen, f"draft {draw.random()}")
        elif message is not None:
            self._change(what, chosen, message)

    def _change(self, what: str, chosen: str, message: Any) -> None:
        """Something that may alter what was committed; so it is announced."""
        session, conversation = self.session, self.session.conversation(chosen)
        self.journal.write("will", what=what, conversation=chosen)
        match what:
            case "stop":
                session.stop(chosen)
            case "regenerate" if not session.is_busy(chosen):
                session.regenerate(chosen)
            case "continue" if not session.is_busy(chosen):
                if conversation.path()[-1].role == "assistant":
                    session.continue_answer(chosen)
            case "edit" if not session.is_busy(chosen):
                session.edit(chosen, message.message_id, f"{message.content} again")
            case "fork" if len(session.conversation_ids()) < 8:
                session.fork(chosen, message.message_id)
            case "delete":
                session.delete_branch(chosen, message.message_id)
            case "delete pair":
                session.delete_pair(chosen, message.message_id)
            case "undo":
                session.undo_delete(chosen)
            case "rename":
                session.rename(chosen, f"Title {self.random.random()}")
            case "close":
                self.window.tab_area.close_conversation(chosen)
            case "pin":
                session.set_pinned([chosen], self.random.random() < 0.5)
            case "folder":
                session.set_folder([chosen], self.random.choice(["", "工作", "b"]))
            case "archive":
                session.set_archived([chosen], True)
            case "delete conversation":
                session.delete_conversations([chosen])
            case "undo conversations" if session.last_deletion is not None:
                for other in session.last_deletion.conversation_ids:
                    self.journal.write("will", what=what, conversation=other)
                session.undo_delete_conversations()


_ACTIONS = (
    *("new", "draft", "stop", "regenerate", "continue", "edit", "fork"),
    *("delete", "delete pair", "undo", "rename", "close"),
    *("pin", "folder", "archive", "delete conversation", "undo conversations"),
)


def _main() -> int:
    sys.path.insert(0, str(REPOSITORY))
    data_dir, journal_file, seed = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    journal = Journal(journal_file)
    from PySide6.QtCore import QTimer
    from PySide6.QtWidgets import QApplication

    from app.main import main
    from app.widgets.main_window import MainWindow
    from tests.helpers.fake_engine import FakeEngine

    qt = QApplication(["quire"])
    drivers: list[Driver] = []

    def look() -> None:
        for window in QApplication.topLevelWidgets():
            if isinstance(window, MainWindow) and window._session.model_state.info is not None:
                timer.stop()
                journal.write("ready", open=window._session.conversation_ids())
                drivers.append(Driver(window, journal, seed))

    timer = QTimer(qt)
    timer.timeout.connect(look)
    timer.start(10)
    lengths = random.Random(seed)
    engine = FakeEngine(
        tokens_per_s=300.0,
        context_length=1 << 20,
        script=lambda _submit: "A long 故事 of 缓存 blocks. " * lengths.choice((2, 20, 200)),
    )
    return main(["--data-dir", str(data_dir)], lambda: engine)


if __name__ == "__main__":
    sys.exit(_main())
