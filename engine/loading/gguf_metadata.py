"""The entries of a GGUF file in full, with the lists and texts that its header leaves where they
are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.loading.gguf_header import SCALARS, STRING, Elsewhere, GgufHeader
from engine.loading.gguf_window import Window, damaged
from engine.loading.progress import Breathe, no_breath

_MAX_TEXT_BYTES = 64 << 20
"""A chat template has some kilobytes."""


def full_metadata(path: Path, header: GgufHeader, breathe: Breathe = no_breath) -> dict[str, Any]:
    """All entries of the file whose header this is, as Python's own values.

    ``breathe`` is called every 0.1 ms or so of work; what it raises ends it.

    Raises:
        ModelFileError: a text is no UTF-8 or far too long, or the file has changed.
        OSError: the file cannot be read.
    """
    values = dict(header.metadata)
    with path.open("rb") as file:
        window = Window(file, path, path.stat().st_size, breathe)
        for key, value in values.items():
            if isinstance(value, Elsewhere):
                window.position = value.offset
                values[key] = _value(window, key, value)
    return values


def _value(window: Window, key: str, value: Elsewhere) -> Any:
    if value.kind != STRING:
        form = SCALARS[value.kind][1]
        return list(window.unpack(f"<{value.count}{form}"))
    if value.is_list:
        texts = window.texts(value.count)
        try:
            return [text.decode() for text in texts]
        except UnicodeDecodeError as error:
            raise damaged(window.path, f"the entry {key} has a text that is none") from error
    if value.count > _MAX_TEXT_BYTES:
        raise damaged(window.path, f"the entry {key} is a text of {value.count:,} bytes")
    return window.take(value.count).decode("utf-8", "replace")
