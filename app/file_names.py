"""File names made of words of the user's. Qt-free."""

from __future__ import annotations

import re

_MAX_BYTES = 200
"""Of the 255 that most file systems allow; " (12)" and ".partial" come on top."""
_MAX_CHARACTERS = 80
_UNSAFE = re.compile(r'[<>:"/\\|?*\x00-\x1f\x7f]+')
# Windows keeps these names for its devices, whatever follows after a dot.
# https://learn.microsoft.com/windows/win32/fileio/naming-a-file
_DEVICE = re.compile(r"(?i)(con|prn|aux|nul|conin\$|conout\$|(com|lpt)[0-9¹²³]) *(\..*)?")


def legal_name(words: str, suffix: str) -> str:
    """A file name that every system takes: ``words`` as far as they can stay, then ``suffix``."""
    stem = " ".join(_UNSAFE.sub(" ", words).split())[:_MAX_CHARACTERS]
    # Half an emoji is no text, and neither is half a character at the cut.
    stem = stem.encode("utf-8", "ignore")[:_MAX_BYTES].decode("utf-8", "ignore").strip(". ")
    if not stem or _DEVICE.fullmatch(stem):
        stem = f"Quire {stem}".strip()
    return f"{stem}{suffix}"
