"""What a model on disk looks like from outside: enough to list a folder, nothing of it is read in.

Standard library only. Whether a file can really be used is for ``DescribeModel`` to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

GGUF_MAGIC = b"GGUF"
WEIGHTS_SUFFIX = ".safetensors"
PICKLED_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Files that run code when they are read. They are never opened."""

_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Tells whether what was found out about a model still holds.

    ``file_bytes``: of its weight files in all. ``modified_ns``: of the newest file that was looked
    at.
    """

    file_bytes: int
    modified_ns: int


@dataclass(frozen=True, slots=True)
class PartName:
    """The name of one part of a GGUF that lies in several files, as llama.cpp spells it:
    ``<stem>-00002-of-00003.gguf``. ``number`` counts from 1.
    """

    stem: str
    number: int
    count: int
    suffix: str

    @classmethod
    def of(cls, name: str) -> PartName | None:
        """What ``name``, with or without folders before it, says; None if it names no part."""
        found = _PART.fullmatch(name)
        if found is None:
            return None
        number, count = int(found[2]), int(found[3])
        return cls(found[1], number, count, found[4]) if 1 <= number <= count else None

    @property
    def whole(self) -> str:
        """The name that all parts have in common: ``<stem>.gguf``."""
        return f"{self.stem}{self.suffix}"

    def names(self) -> list[str]:
        """The names of all parts, the first one first."""
        count = self.count
        return [f"{self.stem}-{n:05}-of-{count:05}{self.suffix}" for n in range(1, count + 1)]


def files_of_gguf(path: Path) -> list[Path]:
    """All files of the GGUF that ``path`` is, or is a part of, in order, also those that are not
    there; by the name alone.
    """
    part = PartName.of(path.name)
    return [path] if part is None else [path.with_name(name) for name in part.names()]


def model_identity(path: Path) -> ModelIdentity:
    """The identity of the model at ``path``, file or folder; of a part of a GGUF, that of all its
    parts that are there.

    Raises:
        OSError: it is not there, or cannot be read.
    """
    if not path.is_dir():
        others = (file for file in files_of_gguf(path) if file != path and file.is_file())
        stats = [file.stat() for file in (path, *others)]
        newest = max(stat.st_mtime_ns for stat in stats)
        return ModelIdentity(sum(stat.st_size for stat in stats), newest)
    weights = [file.stat() for file in _weight_files(path)]
    sides = [file.stat() for file in path.glob("*.json") if file.is_file()]
    return ModelIdentity(
        sum(stat.st_size for stat in weights),
        max((stat.st_mtime_ns for stat in (*weights, *sides)), default=0),
    )


def _weight_files(folder: Path) -> list[Path]:
    return [file for file in folder.glob(f"*{WEIGHTS_SUFFIX}") if file.is_file()]
