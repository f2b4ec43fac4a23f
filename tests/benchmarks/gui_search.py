"""How long a search through many messages takes, and how soon an old profile can be searched."""

from __future__ import annotations

import random
import sqlite3
import tempfile
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from PySide6.QtCore import QCoreApplication, QEvent

from app.bridge import Bridge
from app.conversation import ASSISTANT, USER, Conversation, Message
from app.models.conversations import ConversationListModel
from app.paths import Profile
from app.session import Session
from app.settings import Settings
from app.store import Store
from app.store_rows import (
    CONVERSATION_COLUMNS,
    MESSAGE_COLUMNS,
    conversation_row,
    message_row,
    upsert_sql,
)
from app.store_schema import connect, open_database
from app.store_search import MAX_HITS, find_messages, index_slice
from tests.helpers.fake_engine import FakeEngine

_TURNS = 20
_ENGLISH = "the cache keeps blocks of keys and values that several answers read at once while"
_RUNS = 5


def measure(messages: int = 100_000, seed: int = 0) -> dict[str, Any]:
    """``search_ms``: the slowest median of all queries; one of them, by name, in ``queries_ms``.

    ``titles_ms``: the slowest median of filtering all titles in the side bar, part of it too.

    Half of the messages are English, half Chinese, 20 to 1,200 characters each.
    """
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "conversations.sqlite3"
        open_database(database).close()
        with closing(connect(database)) as connection:
            needles = _fill(connection, messages, draw)
            started = time.perf_counter()
            slices = []
            is_going = True
            while is_going:
                slice_started = time.perf_counter()
                connection.execute("BEGIN IMMEDIATE")
                is_going = index_slice(connection)
                connection.execute("COMMIT")
                slices.append(time.perf_counter() - slice_started)
            index_s = time.perf_counter() - started
        with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
            queries = {name: _time(connection, text) for name, text in needles.items()}
        size = database.stat().st_size
        titles_ms = _time_titles(Path(folder), needles.values())
    return {
        "messages": messages,
        "search_ms": max(titles_ms, *(figures["ms"] for figures in queries.values())),
        "titles_ms": titles_ms,
        "queries_ms": {name: figures["ms"] for name, figures in queries.items()},
        "hits": {name: figures["hits"] for name, figures in queries.items()},
        "max_hits": MAX_HITS,
        "index_s": round(index_s, 2),
        "longest_slice_ms": round(max(slices) * 1e3, 1),
        "database_mb": round(size / 1e6, 1),
    }


def _fill(connection: sqlite3.Connection, messages: int, draw: random.Random) -> dict[str, str]:
    """Stores the messages without indexing them. Returns the queries by name."""
    # Characters as uneven as those of a real text: the first hundred make half of it.
    characters = [chr(0x4E00 + n) for n in range(3000)]
    weights = [1.0 / (n + 20) for n in range(3000)]
    words = _ENGLISH.split() + [
        "".join(draw.choices("etaoinshrdlu", k=draw.randint(3, 9))) for _ in range(4000)
    ]
    chinese_pool = "".join(draw.choices(characters, weights, k=400_000))
    english_pool = " ".join(
        draw.choices(words, [1.0 / (n + 5) for n in range(len(words))], k=80_000)
    )
    connection.execute("BEGIN")
    for trigger in ("search_added", "search_changed"):
        connection.execute(f"DROP TRIGGER {trigger}")
    save_message = upsert_sql("messages", MESSAGE_COLUMNS)
    save_conversation = upsert_sql("conversations", CONVERSATION_COLUMNS)
    for number in range(messages // _TURNS):
        conversation = Conversation(title=f"Conversation {number}")
        for turn in range(_TURNS):
            pool = chinese_pool if number % 2 else english_pool
            length = draw.randint(20, 1200)
            at = draw.randrange(len(pool) - length)
            message = Message(USER if turn % 2 == 0 else ASSISTANT, pool[at : at + length])
            if number == 0:
                # Only in the oldest messages.
                message.content += " zyzzyva 龘龘 qz"
            message.created_at = float(number * _TURNS + turn)
            conversation.append(message)
        connection.execute(save_conversation, conversation_row(conversation))
        rows = [message_row(conversation.conversation_id, m) for m in conversation.path()]
        connection.executemany(save_message, rows)
    connection.execute(
        "INSERT INTO search_documents (message_id, is_indexed)"
        " SELECT message_id, 0 FROM messages ORDER BY created_at"
    )
    connection.execute("COMMIT")
    at = chinese_pool.index(characters[7])
    return {
        "frequent word": "cache",
        "frequent words": "cache blocks several",
        "rare word": "zyzzyva",
        "word that is nowhere": "zyzzyvas",
        "letters that are nowhere together": "etaoinshrdlu",
        "one letter": "e",
        "two letters, rare": "qz",
        "two letters, nowhere": "qx",
        "one character, frequent": characters[0],
        "one character, middling": characters[1500],
        "one character, rare": "龘",
        "one character, nowhere": "鑫",
        "two characters, frequent": chinese_pool[at : at + 2],
        "two characters, rare": "龘龘",
        "two characters, nowhere": "鑫鑫",
        "two characters, nowhere together": characters[0] + "鑫",
        "two frequent, one nowhere": f"{characters[0]} {characters[1]} 鑫",
        "English and Chinese, never together": f"{characters[0]} e",
        "four characters, somewhere": chinese_pool[1000:1004],
        "four characters, nowhere": characters[0] * 3 + "鑫",
        "four frequent characters, nowhere": characters[0] * 4 + characters[1] * 4,
    }


def _time_titles(folder: Path, queries: Iterable[str]) -> float:
    """What a pause in typing costs the window beside the search; in ms."""
    store = Store(Profile(folder))
    session = Session(Bridge(FakeEngine), store, Settings(None), str(folder))
    model = ConversationListModel(session, ())
    model.reload()
    slowest = 0.0
    for query in ("Conversation", "4321", *queries):
        times = []
        for _ in range(_RUNS):
            model.set_filter("")
            started = time.perf_counter()
            model.set_filter(query)
            times.append(time.perf_counter() - started)
        slowest = max(slowest, sorted(times)[_RUNS // 2])
    model.deleteLater()
    session.deleteLater()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    store.close()
    return round(slowest * 1e3, 1)


def _time(connection: sqlite3.Connection, query: str) -> dict[str, Any]:
    times = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        result = find_messages(connection, query)
        times.append(time.perf_counter() - started)
    return {"ms": round(sorted(times)[_RUNS // 2] * 1e3, 1), "hits": len(result.hits)}
