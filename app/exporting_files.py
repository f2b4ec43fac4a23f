"""Writing exports to files, a conversation at a time. Qt-free."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from app.app_error import AppError
from app.conversation import Conversation
from app.exporting import file_name, json_parts, to_markdown
from engine.api.files import discard, replace_file


class ExportFileError(AppError):
    code = "export_file"
    action = "Check the folder's permissions and the free disk space, or choose another folder."


def write_json(
    conversations: Iterable[Conversation], path: Path, count: int
) -> Generator[float, None, None]:
    """Writes all into one file, and yields after each what part of ``count`` is done.

    Closing the generator before its end leaves what was there before.

    Raises:
        ExportFileError: it cannot be written; the old file, if there is one, stays.
    """
    with _whole(path) as file:
        for number, part in enumerate(json_parts(conversations)):
            file.write(part)
            yield min(1.0, number / max(1, count))


def write_markdown(
    conversations: Iterable[Conversation],
    folder: Path,
    name: str,
    you: str,
    answer: str,
    count: int,
) -> Generator[float, None, None]:
    """Writes each into a file of its own, called ``name`` or, if that is empty, by its title; and
    yields as ``write_json`` does. Only ``name`` takes the place of a file that is there already.

    Raises:
        ExportFileError: one cannot be written; those before it stay.
    """
    for number, conversation in enumerate(conversations, 1):
        path = folder / name if name else _unused(folder, conversation)
        with _whole(path) as file:
            file.write(to_markdown(conversation, you, answer))
        yield min(1.0, number / max(1, count))


def _unused(folder: Path, conversation: Conversation) -> Path:
    path = folder / file_name(conversation, ".md")
    number = 2
    while path.exists():
        path = folder / file_name(conversation, f" ({number}).md")
        number += 1
    return path


@contextmanager
def _whole(path: Path) -> Iterator[IO[str]]:
    """A file to write that takes the place of ``path`` when all is written."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        replace_file(partial, path)
    except OSError as error:
        reason = error.strerror or str(error)
        message = f"{path.name} cannot be written: {reason}"
        raise ExportFileError(message, path=str(path), reason=reason) from error
    finally:
        discard(partial)
