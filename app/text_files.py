"""Text files that go along with a message. Qt-free."""

from __future__ import annotations

import codecs
from pathlib import Path

from app.app_error import AppError
from app.conversation import Attachment

MAX_BYTES = 2 * 1024 * 1024
"""A model with a context of 200,000 tokens reads less."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # Before UTF-16, whose mark it begins with.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class AttachmentError(AppError):
    """Base of the reasons why a file cannot be attached."""

    code = "attachment"
    action = "Choose another file."


class AttachmentTooLargeError(AttachmentError):
    code = "attachment_too_large"
    action = "Attach a part of it, or paste what matters."


class AttachmentBinaryError(AttachmentError):
    code = "attachment_binary"
    action = "Attach text files; of other documents paste the text."


class TooManyAttachmentsError(AttachmentError):
    code = "attachments_too_many"
    action = "Attach the others afterwards."


class AttachmentUnreadableError(AttachmentError):
    code = "attachment_unreadable"
    action = "Check that the file is there and may be read."


def read_text_file(path: Path) -> Attachment:
    """The text of a file, whatever its encoding; line ends become single newlines.

    Raises:
        AttachmentError: it is larger than ``MAX_BYTES``, no text, or cannot be read.
    """
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise AttachmentUnreadableError(
                f"{path.name} is not a file.", name=path.name, reason="not a file"
            )
        if size > MAX_BYTES:
            raise AttachmentTooLargeError(
                f"{path.name} has {size:,} bytes, but {MAX_BYTES:,} are the limit.",
                name=path.name,
                size_kb=size // 1024,
                limit_kb=MAX_BYTES // 1024,
            )
        data = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise AttachmentUnreadableError(
            f"{path.name} cannot be read: {reason}", name=path.name, reason=reason
        ) from error
    text = decoded(data)
    if text is None:
        raise AttachmentBinaryError(f"{path.name} is not a text file.", name=path.name)
    return Attachment(path.name, text.replace("\r\n", "\n").replace("\r", "\n"))


def decoded(data: bytes) -> str | None:
    """``data`` as text: by its mark, else UTF-8, else as the bytes suggest. None if it is none."""
    try:
        for mark, encoding in _BOMS:
            if data.startswith(mark):
                return data.decode(encoding)
        if b"\0" in data:
            return None
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return _guessed(data)


def _guessed(data: bytes) -> str | None:
    # Imported late: it is seldom needed.
    from charset_normalizer import from_bytes

    # Those have a mark, or zeros, or are not used for files.
    unlikely = ["utf_16", "utf_16_le", "utf_16_be", "utf_32", "utf_32_le", "utf_32_be", "utf_7"]
    matches = from_bytes(data, cp_exclusion=unlikely)
    best = matches.best()
    if best is None:
        return None
    for match in matches:
        # Many code pages read a text of Western Europe equally well; this one is meant.
        is_as_good = match.chaos <= best.chaos and match.coherence >= best.coherence
        if match.encoding == "cp1252" and is_as_good:
            return str(match)
    return str(best)


def sent_text(attachment: Attachment) -> str:
    """How an attachment is put into the message."""
    if not attachment.name:
        return attachment.text
    longest = max((len(run) for run in _fences(attachment.text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{attachment.name}\n{fence}\n{attachment.text.rstrip()}\n{fence}"


def _fences(text: str) -> list[str]:
    lines = (line.lstrip() for line in text.splitlines())
    return [line[: len(line) - len(line.lstrip("`"))] for line in lines if line.startswith("`")]
