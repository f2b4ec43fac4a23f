"""What the engine expanded of a GGUF for itself: a folder of up to 4 bytes a parameter."""

from __future__ import annotations

import json
import os
from pathlib import Path

from app.library.scan import EXPANDED_NAME, files_of
from engine.api.model_files import PartName


def expanded_copies(path: Path, models_dir: Path) -> list[Path]:
    """The folders of ``models_dir`` that were made from the GGUF at ``path``, by its name, size and
    time; none of a model that is a folder. Never raises.
    """
    try:
        if path.is_dir():
            return []
        stats = [file.stat() for file in files_of(path)]
        part = PartName.of(path.name)
        # As the engine's source.json has it.
        source: dict[str, object] = {
            "name": path.name if part is None else part.whole,
            "size": sum(stat.st_size for stat in stats),
            "mtime_ns": sum(stat.st_mtime_ns for stat in stats),
        }
        with os.scandir(models_dir) as entries:
            folders = sorted(Path(entry.path) for entry in entries if not entry.is_symlink())
    except OSError:
        return []
    return [folder for folder in folders if _is_made_from(folder, source)]


def _is_made_from(folder: Path, source: dict[str, object]) -> bool:
    try:
        said = json.loads((folder / EXPANDED_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(said, dict) and all(said.get(name) == source[name] for name in source)
