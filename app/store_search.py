"""The index of what the messages say: its tables, building it in slices, asking it. Qt-free.

An FTS5 table of trigrams holds no text of its own; triggers keep it in step with ``messages``. Two
line ends after each text make every character the first of a trigram, so that words of one or two
characters, most Chinese words among them, are prefixes of terms and can be looked up too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from app.titles import JOINERS

MAX_HITS = 50
_NEWEST = 1000
_MAX_PLACES = 8000
_MAX_CANDIDATES = 2500
_SLICE_CHARS = 30_000
_SLICE_MESSAGES = 100
_BEFORE, _AFTER = 28, 96

_PAD = "char(10) || char(10)"
_UNINDEX = f"""
    INSERT INTO search (search, rowid, text)
        SELECT 'delete', document_id, old.content || {_PAD} FROM search_documents
        WHERE message_id = old.message_id AND is_indexed;"""
_INDEX = f"""
    INSERT INTO search (rowid, text)
        SELECT document_id, new.content || {_PAD} FROM search_documents
        WHERE message_id = new.message_id;"""

_TABLE = (
    "CREATE VIRTUAL TABLE search"
    " USING fts5 (text, content = '', columnsize = 0, tokenize = 'trigram')"
)

# The rowid of ``messages`` is not the document's: SQLite may number it anew. Messages that came
# later have higher document ids. An answer that is being streamed has no document: its text
# changes twice a second.
SEARCH_SCHEMA = f"""
CREATE TABLE search_documents (
    document_id INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL UNIQUE,
    is_indexed INTEGER NOT NULL
);
CREATE INDEX search_documents_missing ON search_documents (is_indexed) WHERE is_indexed = 0;
{_TABLE};
CREATE TRIGGER search_added AFTER INSERT ON messages WHEN new.status <> 'streaming'
    AND NOT EXISTS (SELECT 1 FROM search_documents WHERE message_id = new.message_id) BEGIN
    INSERT INTO search_documents (message_id, is_indexed) VALUES (new.message_id, 1);{_INDEX}
END;
CREATE TRIGGER search_changed AFTER UPDATE ON messages
WHEN new.status <> 'streaming' AND (old.status = 'streaming' OR old.content <> new.content) BEGIN
    {_UNINDEX}
    DELETE FROM search_documents WHERE message_id = old.message_id AND old.status = 'streaming';
    INSERT INTO search_documents (message_id, is_indexed) SELECT new.message_id, 1
        WHERE NOT EXISTS (SELECT 1 FROM search_documents WHERE message_id = new.message_id);
    UPDATE search_documents SET is_indexed = 1 WHERE message_id = new.message_id;{_INDEX}
END;
CREATE TRIGGER search_reopened AFTER UPDATE ON messages
WHEN new.status = 'streaming' AND old.status <> 'streaming' BEGIN
    {_UNINDEX}
    DELETE FROM search_documents WHERE message_id = old.message_id;
END;
CREATE TRIGGER search_removed AFTER DELETE ON messages BEGIN
    {_UNINDEX}
    DELETE FROM search_documents WHERE message_id = old.message_id;
END;
"""
# For a profile that has messages already: numbered at once, indexed in slices.
SEARCH_MIGRATION = f"""{SEARCH_SCHEMA}
INSERT INTO search_documents (message_id, is_indexed)
    SELECT message_id, 0 FROM messages WHERE status <> 'streaming' ORDER BY created_at, rowid;
"""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A message with all the words. ``marks``: (start, end) of each in ``snippet``."""

    conversation_id: str
    message_id: str
    title: str
    role: str
    created_at: float
    snippet: str
    marks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Hits among the messages that were stored last, at most ``MAX_HITS``, the newest first.

    ``is_complete``: false if old messages were not looked at: they are still being indexed, or the
    words are too short and too frequent. ``error``: why nothing could be looked up, or empty.
    """

    query: str
    hits: tuple[SearchHit, ...] = ()
    is_complete: bool = True
    error: str = ""


def index_later(connection: sqlite3.Connection, message_ids: Iterable[str]) -> None:
    """Numbers messages that are about to be inserted; ``index_slice`` indexes them."""
    connection.executemany(
        "INSERT INTO search_documents (message_id, is_indexed) VALUES (?, 0)",
        ((message_id,) for message_id in message_ids),
    )


def index_slice(connection: sqlite3.Connection) -> bool:
    """Indexes some of the newest messages that are not yet. False if there were none.

    Some milliseconds of work, in a transaction of the caller's.
    """
    # The column as it is in the index's condition, or SQLite would not use the index.
    rows = connection.execute(
        "SELECT document_id, length(content) FROM search_documents JOIN messages USING (message_id)"
        " WHERE is_indexed = 0 ORDER BY document_id DESC LIMIT ?",
        (_SLICE_MESSAGES,),
    ).fetchall()
    chars = 0
    for document_id, length in rows:
        connection.execute(
            f"INSERT INTO search (rowid, text) SELECT document_id, content || {_PAD}"
            " FROM search_documents JOIN messages USING (message_id) WHERE document_id = ?",
            (document_id,),
        )
        connection.execute(
            "UPDATE search_documents SET is_indexed = 1 WHERE document_id = ?", (document_id,)
        )
        chars += length
        if chars >= _SLICE_CHARS:
            break
    return bool(rows)


def renew_index(connection: sqlite3.Connection) -> None:
    """Begins the index anew: a damaged one would keep messages from being saved.

    Raises:
        sqlite3.Error: more than the index is damaged.
    """
    connection.execute("DROP TABLE search")
    connection.execute(_TABLE)
    connection.execute("UPDATE search_documents SET is_indexed = 0")


def find_messages(connection: sqlite3.Connection, query: str) -> SearchResult:
    """Messages with all the words of ``query``, whatever their case.

    Raises:
        sqlite3.Error: the database cannot be read.
    """
    words = lowered(query).split()
    hits: list[SearchHit] = []
    budget = _MAX_CANDIDATES
    for row in _candidates(connection, words) if words else ():
        if row is None:
            budget = 0
            break
        budget -= 1
        text = lowered(row[5])
        places = [text.find(word) for word in words]
        if -1 not in places:
            snippet, marks = make_snippet(row[5], min(places), words)
            hits.append(SearchHit(*row[:5], snippet, marks))
        if budget == 0 or len(hits) == MAX_HITS:
            break
    missing = connection.execute("SELECT 1 FROM search_documents WHERE is_indexed = 0 LIMIT 1")
    hits.sort(key=lambda hit: hit.created_at, reverse=True)
    is_complete = budget > 0 and missing.fetchone() is None
    return SearchResult(query, tuple(hits), is_complete)


def lowered(text: str) -> str:
    """Lower case, character by character: places stay what they were."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def make_snippet(
    text: str, place: int, words: list[str]
) -> tuple[str, tuple[tuple[int, int], ...]]:
    """One line around ``place`` without control characters, and where the words are in it."""
    start, end = max(0, place - _BEFORE), place + _AFTER
    if start:
        # From the beginning of a word, where words have spaces between them.
        space = text.find(" ", start, place)
        start = start if space < 0 else space + 1
    shown = "".join(c if c.isprintable() or c in JOINERS else " " for c in text[start:end])
    shown = " ".join(shown.split())
    shown = f"{'…' if start else ''}{shown}{'…' if end < len(text) else ''}"
    lower, marks = lowered(shown), []
    for word in words:
        at = lower.find(word)
        while at >= 0:
            marks.append((at, at + len(word)))
            at = lower.find(word, at + len(word))
    return shown, tuple(sorted(marks))


_Row = tuple[str, str, str, str, float, str]
_ROW = (
    "SELECT conversation_id, message_id, title, role, messages.created_at, content"
    " FROM search_documents JOIN messages USING (message_id) JOIN conversations"
    " USING (conversation_id)"
    " WHERE messages.deleted_at IS NULL AND conversations.deleted_at IS NULL"
)


def _candidates(connection: sqlite3.Connection, words: list[str]) -> Iterator[_Row | None]:
    """Messages that may have all the words, the newest first, their text last.

    None at the end: there may be more.
    """
    long = [word for word in words if len(word) > 2]
    if long:
        wanted = " ".join('"' + word.replace('"', '""') + '"' for word in long)
        documents = connection.execute(
            "SELECT rowid FROM search WHERE search MATCH ? ORDER BY rowid DESC", (wanted,)
        )
        yield from _rows(connection, (row[0] for row in documents))
        return
    # Frequent words are in some of the newest messages, most of the time; of rare ones the index
    # has few places.
    lowest = None
    newest = f"{_ROW.replace('SELECT', 'SELECT document_id,', 1)} ORDER BY document_id DESC LIMIT ?"
    for row in connection.execute(newest, (_NEWEST,)):
        lowest = row[0]
        conversation_id, message_id, title, role, created_at, content = row[1:]
        yield conversation_id, message_id, title, role, created_at, content
    if lowest is not None:
        found = [_documents(connection, word) for word in words]
        whole = [documents for documents, is_whole in found if is_whole]
        some = set.intersection(*whole) if whole else found[0][0]
        older = sorted((d for d in some if d < lowest), reverse=True)
        yield from _rows(connection, iter(older))
        if not whole:
            yield None


def _documents(connection: sqlite3.Connection, word: str) -> tuple[set[int], bool]:
    """Documents with a term that begins with ``word``, and whether these are all."""
    connection.execute(
        "CREATE VIRTUAL TABLE IF NOT EXISTS temp.search_places"
        " USING fts5vocab (main, search, instance)"
    )
    last = ord(word[-1]) + 1
    # Surrogates cannot be stored.
    after = word[:-1] + chr(0xE000 if last == 0xD800 else min(last, 0x10FFFF))
    rows = connection.execute(
        "SELECT doc FROM temp.search_places WHERE term >= ? AND term < ? LIMIT ?",
        (word, after, _MAX_PLACES),
    ).fetchall()
    return {row[0] for row in rows}, len(rows) < _MAX_PLACES


def _rows(connection: sqlite3.Connection, documents: Iterator[int]) -> Iterator[_Row]:
    for document_id in documents:
        row = connection.execute(f"{_ROW} AND document_id = ?", (document_id,)).fetchone()
        if row is not None:
            conversation_id, message_id, title, role, created_at, content = row
            yield conversation_id, message_id, title, role, created_at, content
