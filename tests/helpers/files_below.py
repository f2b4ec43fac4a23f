"""Files in a folder from which something may be deleted meanwhile."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path


def files_below(folder: Path, pattern: str = "*") -> list[Path]:
    """Files whose names fit; ``Path.rglob`` raises where a folder goes while it looks."""
    found = (
        Path(place) / name
        for place, _, names in os.walk(folder)
        for name in names
        if fnmatch(name, pattern)
    )
    return sorted(found)
