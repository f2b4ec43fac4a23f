"""Which file an expanded folder came from, and whether it still stands for it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

SOURCE_NAME = "source.json"
FORMAT = 1
"""Raised whenever expansion changes, so that older folders are made anew."""

_SAMPLE_BYTES = 1 << 20
_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class Source:
    """A model file's identity. ``quick_digest``: SHA-256 over size, first and last MiB.

    The whole file's ``sha256`` is taken once, at expansion; later starts compare the quick digest
    and the modification time, so that they need not read gigabytes.
    """

    name: str
    path: str
    size: int
    mtime_ns: int
    quick_digest: str
    sha256: str = ""
    license: str = ""
    format: int = FORMAT

    @classmethod
    def of(cls, path: Path) -> Source:
        """The identity of the file at ``path``, without its full digest."""
        stat = path.stat()
        digest = hashlib.sha256(str(stat.st_size).encode())
        with path.open("rb") as file:
            digest.update(file.read(_SAMPLE_BYTES))
            file.seek(max(stat.st_size - _SAMPLE_BYTES, 0))
            digest.update(file.read(_SAMPLE_BYTES))
        return cls(path.name, str(path), stat.st_size, stat.st_mtime_ns, digest.hexdigest())

    def with_full_digest(self, license: str) -> Source:
        """The same with the digest of the whole file."""
        return replace(self, sha256=file_sha256(Path(self.path)), license=license)

    def to_json(self) -> dict[str, Any]:
        """For source.json. The path stays out: the folder may be carried elsewhere."""
        values = asdict(self)
        del values["path"]
        return values


def file_sha256(path: Path) -> str:
    """SHA-256 of a whole file, as hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def expanded_folder(source: Source, models_dir: Path) -> Path:
    """Where ``source`` is expanded to."""
    stem = re.sub(r"[^\w.-]", "_", Path(source.name).stem)[:80]
    return models_dir / f"{stem}-{source.quick_digest[:8]}"


def read_source(folder: Path) -> Mapping[str, Any] | None:
    """What source.json of ``folder`` says, or None if there is none or it is damaged."""
    try:
        values = json.loads((folder / SOURCE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def is_expanded(folder: Path, source: Source) -> bool:
    """Whether ``folder`` is complete and was made from the file that ``source`` describes."""
    saved = read_source(folder)
    if saved is None or saved.get("format") != FORMAT:
        return False
    if saved.get("quick_digest") != source.quick_digest:
        return False
    if not all((folder / name).is_file() for name in _FILES):
        return False
    if saved.get("mtime_ns") == source.mtime_ns:
        return True
    # Copied or written anew: only the whole file tells. Noted, so that it is read once.
    if saved.get("sha256") != file_sha256(Path(source.path)):
        return False
    fresh = {**saved, "mtime_ns": source.mtime_ns}
    (folder / SOURCE_NAME).write_text(json.dumps(fresh, indent=1), encoding="utf-8")
    return True
