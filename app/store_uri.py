"""A database file by its address, which can say how it is to be opened. Qt-free."""

from __future__ import annotations

from pathlib import Path, PurePath
from urllib.parse import quote


def sqlite_uri(path: PurePath) -> str:
    """An absolute path as SQLite takes it: a share's server too goes into the path.

    ``as_uri`` would name the server as the authority, which SQLite refuses
    (https://www.sqlite.org/uri.html).
    """
    name = path.as_posix()
    return f"file://{quote(name if name.startswith('/') else f'/{name}', safe='/:')}"


def read_only_uri(database: Path) -> str:
    """A database to read, which is never made where there is none."""
    return f"{sqlite_uri(database.absolute())}?mode=ro"
