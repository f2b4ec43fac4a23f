"""Which file or files an expanded folder came from, and whether it still stands for it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from engine.loading.gguf_parts import whole_name
from engine.loading.progress import (
    Cancelled,
    Progress,
    check_cancelled,
    never_cancelled,
    no_progress,
)

SOURCE_NAME = "source.json"
FORMAT = 1
"""Raised whenever expansion changes, so that older folders are made anew."""

_SAMPLE_BYTES = 1 << 20
_PIECE_BYTES = 8 << 20
_MAX_NAME_BYTES = 200
WEIGHTS_NAME = "model.safetensors"
_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True, slots=True)
class Source:
    """The identity of a model's file, or of all its parts together. ``quick_digest``: SHA-256 over
    size, first and last MiB of each. ``mtime_ns``: of several files the sum, which changes with any
    of them.

    The whole ``sha256`` is taken once, at expansion; later starts compare the quick digest and the
    modification time, so that they need not read gigabytes.
    """

    name: str
    paths: tuple[Path, ...]
    size: int
    mtime_ns: int
    quick_digest: str
    sha256: str = ""
    license: str = ""
    format: int = FORMAT

    @classmethod
    def of(cls, *paths: Path) -> Source:
        """The identity of the file, or of a file's parts in order, without the full digest."""
        digest, size, time_ns = hashlib.sha256(), 0, 0
        for path in paths:
            stat = path.stat()
            digest.update(str(stat.st_size).encode())
            with path.open("rb") as file:
                digest.update(file.read(_SAMPLE_BYTES))
                file.seek(max(stat.st_size - _SAMPLE_BYTES, 0))
                digest.update(file.read(_SAMPLE_BYTES))
            size, time_ns = size + stat.st_size, time_ns + stat.st_mtime_ns
        return cls(whole_name(paths[0]), paths, size, time_ns, digest.hexdigest())

    def with_full_digest(
        self,
        license: str,
        progress: Progress = no_progress,
        cancelled: Cancelled = never_cancelled,
    ) -> Source:
        """The same with the digest of all that the files hold; see ``files_sha256``."""
        digest = files_sha256(self.paths, progress, cancelled)
        return replace(self, sha256=digest, license=license)

    def to_json(self) -> dict[str, Any]:
        """For source.json. The paths stay out: the folder may be carried elsewhere."""
        values = asdict(self)
        del values["paths"]
        return values


def files_sha256(
    paths: Sequence[Path],
    progress: Progress = no_progress,
    cancelled: Cancelled = never_cancelled,
) -> str:
    """SHA-256 of whole files, one after the other, as hex: some seconds for some gigabytes.

    Raises:
        LoadCancelledError: ``cancelled()`` became true.
    """
    size, done, digest = max(sum(path.stat().st_size for path in paths), 1), 0, hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                check_cancelled(cancelled)
                progress("read", min(done / size, 1.0), path.name)
                digest.update(piece)
                done += len(piece)
    return digest.hexdigest()


def expanded_folder(source: Source, models_dir: Path) -> Path:
    """Where ``source`` is expanded to."""
    stem = re.sub(r"[^\w.-]", "_", Path(source.name).stem)[:80]
    # Chinese signs and emoji take three and four of the 255 bytes that a name may have.
    stem = stem.encode("utf-8", "ignore")[:_MAX_NAME_BYTES].decode("utf-8", "ignore")
    return models_dir / f"{stem}-{source.quick_digest[:8]}"


def read_source(folder: Path) -> Mapping[str, Any] | None:
    """What source.json of ``folder`` says, or None if there is none or it is damaged."""
    try:
        values = json.loads((folder / SOURCE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return values if isinstance(values, dict) else None


def is_expanded(
    folder: Path,
    source: Source,
    weights: bool = True,
    progress: Progress = no_progress,
    cancelled: Cancelled = never_cancelled,
) -> bool:
    """Whether ``folder`` is complete and was made from the file that ``source`` describes.

    ``weights``: whether its weights belong to that. Files with another time than they had are read
    whole, once.

    Raises:
        LoadCancelledError: ``cancelled()`` became true.
    """
    saved = read_source(folder)
    if saved is None or saved.get("format") != FORMAT:
        return False
    if saved.get("quick_digest") != source.quick_digest:
        return False
    files = (*_FILES, WEIGHTS_NAME) if weights else _FILES
    if not all((folder / name).is_file() for name in files):
        return False
    if saved.get("mtime_ns") == source.mtime_ns:
        return True
    # Copied or written anew: only the whole file tells. Noted, so that it is read once.
    if saved.get("sha256") != files_sha256(source.paths, progress, cancelled):
        return False
    fresh = {**saved, "mtime_ns": source.mtime_ns}
    (folder / SOURCE_NAME).write_text(json.dumps(fresh, indent=1), encoding="utf-8")
    return True
