"""Kills ``kill_child`` at random moments, and holds what is on disk against its journal."""

from __future__ import annotations

import json
import random
import sqlite3
import subprocess
import sys
import time
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.conversation import MessageStatus
from app.paths import Profile
from app.store import Store
from tests.helpers.kill_child import digest
from tests.helpers.word_encoder import words_of

CHILD = Path(__file__).with_name("kill_child.py")
MAX_STALE_S = 1.0
READY_TIMEOUT_S = 60.0


@dataclass
class Promise:
    """A committed message. ``may_change``: something was begun since that may alter or take it."""

    conversation_id: str
    is_done: bool
    length: int
    digest: str
    may_change: bool = False


@dataclass
class Findings:
    """``staleness_s``: for each kill the age of the oldest text that was lost."""

    kills: int = 0
    promises_held: int = 0
    interrupted: int = 0
    staleness_s: list[float] = field(default_factory=list)


class KillCheck:
    """One profile that is killed again and again; the window opens on it each time."""

    def __init__(self, folder: Path, seed: int, data_dir: Path | None = None) -> None:
        """``data_dir``: another place for the profile, on another disk."""
        self.profile = Profile(data_dir or folder / "張 庭 é's dir")
        self.findings = Findings()
        self._random = random.Random(seed)
        self._journal = folder / "journal.ndjson"
        self._said = folder / "said.txt"
        self._promises: dict[str, Promise] = {}
        self._titles: dict[str, str] = {}

    def kill_once(self, trouble: AbstractContextManager[None] | None = None) -> None:
        """Starts the application, lets it work, kills it, and checks what it leaves behind.

        ``trouble`` begins in the middle of the work and ends with the kill; what comes meanwhile
        may be lost.
        """
        self._journal.unlink(missing_ok=True)
        seed = self._random.getrandbits(32)
        arguments = [str(self.profile.data_dir), str(self._journal), str(seed)]
        with self._said.open("w") as said:
            child = subprocess.Popen(
                [sys.executable, str(CHILD), *arguments], stdout=said, stderr=said
            )
        ends = ExitStack()
        try:
            if self._random.random() < 0.15:
                # In the middle of a start.
                time.sleep(self._random.uniform(0.1, 1.2))
            else:
                self._wait_until_ready(child)
                # Those that only stream in the end are given the time to.
                time.sleep(self._random.uniform(0.0, 1.2) + 1.5 * (seed % 3 == 0))
                if trouble is not None:
                    ends.enter_context(trouble)
                    time.sleep(self._random.uniform(0.0, 1.2))
            self._require_running(child)
        finally:
            child.kill()
            child.wait()
            ends.close()
        self.findings.kills += 1
        self._check([json.loads(line) for line in self._lines()], trouble is None)

    def _lines(self) -> list[str]:
        return self._journal.read_text("utf-8").splitlines() if self._journal.exists() else []

    def _require_running(self, child: subprocess.Popen[bytes]) -> None:
        assert child.poll() is None, f"it ended by itself: {self._said.read_text('utf-8')}"

    def _wait_until_ready(self, child: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not any('"ready"' in line for line in self._lines()[:1]):
            assert time.monotonic() < deadline, "the window did not open"
            self._require_running(child)
            time.sleep(0.02)

    def _check(self, journal: list[dict[str, Any]], must_be_fresh: bool) -> None:
        for entry in journal:
            assert entry["kind"] != "error", entry["trace"]
            if entry["kind"] == "committed":
                self._promised(entry)
            elif entry["kind"] == "will":
                for promise in self._promises.values():
                    promise.may_change |= promise.conversation_id == entry["conversation"]
                self._titles.pop(entry["conversation"], None)
        if not self.profile.database.exists():
            # Killed before it had made one.
            assert not self._promises
            return
        with closing(sqlite3.connect(self.profile.database)) as database:
            database.row_factory = sqlite3.Row
            assert [row[0] for row in database.execute("PRAGMA integrity_check")] == ["ok"]
            assert database.execute("PRAGMA foreign_key_check").fetchall() == []
            rows = {row["message_id"]: row for row in database.execute("SELECT * FROM messages")}
            # Nothing that is there stands below something deleted, where no branch reaches it.
            assert not [
                row
                for row in rows.values()
                if row["deleted_at"] is None
                and row["parent_id"] is not None
                and rows[row["parent_id"]]["deleted_at"] is not None
            ]
            titles = dict(database.execute("SELECT conversation_id, title FROM conversations"))
        for key, title in self._titles.items():
            assert titles.get(key) == title, f"a committed title is gone: {title}"
        self._hold_against(rows)
        if must_be_fresh:
            self._check_staleness(rows, journal)
        self._check_opening(rows)

    def _promised(self, entry: dict[str, Any]) -> None:
        """The newest word about the conversations that are open."""
        self._promises = {
            key: promise
            for key, promise in self._promises.items()
            if promise.conversation_id not in entry["titles"]
        }
        # The first question gives a title to what has none.
        self._titles |= {key: title for key, title in entry["titles"].items() if title}
        for key, values in entry["messages"].items():
            self._promises[key] = Promise(*values)

    def _hold_against(self, rows: dict[str, sqlite3.Row]) -> None:
        for key, promise in list(self._promises.items()):
            if promise.may_change:
                # Whatever became of it is what counts from now on.
                del self._promises[key]
                continue
            row = rows.get(key)
            assert row is not None, f"a committed message is gone: {key}"
            assert row["deleted_at"] is None, f"a committed message was deleted: {key}"
            assert digest(row["content"][: promise.length]) == promise.digest, key
            assert not promise.is_done or len(row["content"]) == promise.length, key
            promise.is_done, promise.length = True, len(row["content"])
            promise.digest = digest(row["content"])
            self.findings.promises_held += 1

    def _check_staleness(self, rows: dict[str, sqlite3.Row], journal: list[dict[str, Any]]) -> None:
        texts: dict[str, list[tuple[float, int]]] = {}
        for entry in journal:
            if entry["kind"] == "text":
                texts.setdefault(entry["message"], []).append((entry["at"], entry["length"]))
        worst = 0.0
        for key, said in texts.items():
            row = rows.get(key)
            stored = 0 if row is None else len(row["content"])
            lost = [at for at, length in said if length > stored]
            if lost and (row is None or row["status"] == "streaming"):
                worst = max(worst, journal[-1]["at"] - lost[0])
        self.findings.staleness_s.append(worst)
        assert worst <= MAX_STALE_S, f"text of {worst:.2f} s is lost"

    def _check_opening(self, rows: dict[str, sqlite3.Row]) -> None:
        streaming = {key for key, row in rows.items() if row["status"] == "streaming"}
        store = Store(self.profile)
        try:
            assert store.problems == []
            for summary in store.summaries():
                conversation = store.load_conversation(summary.conversation_id)
                assert conversation is not None
                assert bool(conversation.path()) == bool(conversation.messages)
                for message in conversation.messages.values():
                    assert message.status is not MessageStatus.STREAMING
                    if message.message_id in streaming:
                        assert message.status is MessageStatus.INTERRUPTED
                        self.findings.interrupted += 1
                        self._check_ids(message)
        finally:
            assert store.close()

    def _check_ids(self, message: Any) -> None:
        """The ids are those of the text, so that the engine can go on from them."""
        if message.content:
            assert message.turn is not None
            assert len(message.turn.output_ids) == len(words_of(message.content))
            assert message.turn.covered_chars == len(message.content)
