"""Which safetensors files hold a model's weights, and what is in them. No torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from engine.api.errors import (
    ModelError,
    ModelFileError,
    ModelNotFoundError,
    PickledWeightsError,
    UnsupportedModelError,
)
from engine.api.model_files import PICKLED_SUFFIXES, WEIGHTS_SUFFIX
from engine.loading.plain_text import plain_text
from engine.loading.safetensors_file import TensorEntry, read_header

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_MAX_INDEX_BYTES = 16 << 20
_MAX_SHARDS = 10_000
_SAMPLE_BYTES = 1 << 16
_READ_TYPES = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class WeightFiles:
    """A folder's weights. ``entries``: every tensor's type and shape. ``digest``: over what tells
    them from any others.
    """

    paths: tuple[Path, ...]
    entries: dict[str, TensorEntry]
    digest: hashlib._Hash


def read_weight_files(folder: Path) -> WeightFiles:
    """The weights in ``folder``, in one file or in several with an index, checked.

    Raises:
        ModelNotFoundError: no weights, or some of their files are missing.
        ModelFileError: an index or file is damaged or truncated, or a tensor is missing or there
            twice.
        UnsupportedModelError: weights of a type that cannot be computed with.
        PickledWeightsError: weights that are pickled.
        OSError: a file cannot be read.
    """
    placed = _read_index(folder)
    names = sorted(set(placed.values())) if placed else [SINGLE]
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise _missing(folder, names, missing)
    entries: dict[str, TensorEntry] = {}
    holders: dict[str, str] = {}
    digest = hashlib.sha256()
    for name in names:
        found, header = read_header(folder / name)
        for tensor, entry in found.items():
            if tensor in holders:
                raise ModelFileError(
                    f"Tensor {plain_text(tensor)} is in two files, {holders[tensor]} and {name}.",
                    tensor=plain_text(tensor),
                )
            holders[tensor] = name
            entries[tensor] = entry
        _add_identity(digest, folder / name, header)
    _check_complete(placed, entries)
    return WeightFiles(tuple(folder / name for name in names), entries, digest)


def check_types(entries: Mapping[str, TensorEntry], ignored_suffixes: tuple[str, ...]) -> None:
    """Refuses weights that are not floating-point numbers.

    Raises:
        UnsupportedModelError: the first one is named with its type.
    """
    for name, entry in entries.items():
        if entry.dtype not in _READ_TYPES and not name.endswith(ignored_suffixes):
            raise UnsupportedModelError(
                f"Tensor {plain_text(name)} is of type {entry.dtype}; weights can be read in "
                f"{', '.join(_READ_TYPES)}.",
                action="Choose another file of this model, with weights in BF16, F16 or F32.",
                tensor_type=entry.dtype,
            )


def refuse_pickle(name: str) -> None:
    """Raises:
    PickledWeightsError: ``name`` is that of a pickled file, which is never opened.
    """
    if name.lower().endswith(PICKLED_SUFFIXES):
        shown = plain_text(name)
        raise PickledWeightsError(f"{shown} is a pickled file, which is never opened.", name=shown)


def pickled_files(folder: Path) -> list[str]:
    """Names of the pickled files in a folder."""
    return sorted(path.name for path in folder.glob("*") if path.name.endswith(PICKLED_SUFFIXES))


def _read_index(folder: Path) -> dict[str, str]:
    """Which file each tensor is in, by the index; empty without one."""
    path = folder / INDEX
    if not path.is_file():
        return {}
    size = path.stat().st_size
    if size > _MAX_INDEX_BYTES:
        raise _damaged_index(f"it has {size:,} bytes, {_MAX_INDEX_BYTES:,} are the limit")
    try:
        index = json.loads(path.read_bytes(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _damaged_index(plain_text(str(error))) from error
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise _damaged_index("it has no weight_map")
    for tensor, name in weight_map.items():
        _check_name(tensor, name)
    if len(set(weight_map.values())) > _MAX_SHARDS:
        raise _damaged_index(f"it names more than {_MAX_SHARDS:,} files")
    return weight_map


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{plain_text(name)} is named twice")
        found[name] = value
    return found


def _check_name(tensor: str, name: object) -> None:
    shown = plain_text(str(name), 120)
    if not isinstance(name, str) or not name.isprintable():
        raise _damaged_index(f"tensor {plain_text(tensor)} is to be in {shown}")
    refuse_pickle(name)
    # A name with a folder in it could point outside the model, by either system's rules.
    if PurePosixPath(name).name != name or PureWindowsPath(name).name != name:
        raise _damaged_index(
            f"tensor {plain_text(tensor)} is to be in {shown}, outside the model's folder"
        )
    if not name.endswith(WEIGHTS_SUFFIX):
        raise _damaged_index(
            f"tensor {plain_text(tensor)} is to be in {shown}, which is no {WEIGHTS_SUFFIX} file"
        )


def _check_complete(placed: Mapping[str, str], entries: Collection[str]) -> None:
    absent = [tensor for tensor in placed if tensor not in entries]
    if absent:
        raise ModelFileError(
            f"{len(absent):,} of {len(placed):,} tensors that {INDEX} names are not in its files, "
            f"{plain_text(absent[0])} first, which is to be in {placed[absent[0]]}.",
            action="Fetch the model's files again.",
            tensor=plain_text(absent[0]),
        )


def _missing(folder: Path, names: list[str], missing: list[str]) -> ModelError:
    pickled = pickled_files(folder)
    if names == [SINGLE] and pickled:
        return PickledWeightsError(
            f"The weights in {folder} are pickled ({pickled[0]}), and such files are never opened.",
            name=plain_text(pickled[0]),
        )
    return ModelNotFoundError(
        f"{len(missing)} of {len(names)} weight files are missing in {folder}, {missing[0]} first.",
        action="Fetch the missing files; weights must be in the safetensors format.",
        missing=len(missing),
    )


def _damaged_index(what: str) -> ModelFileError:
    return ModelFileError(f"{INDEX} is damaged: {what}.")


def _add_identity(digest: hashlib._Hash, path: Path, header: bytes) -> None:
    """Header, size, first and last bytes of the data: cheap, and no two models share them."""
    size = path.stat().st_size
    digest.update(header)
    digest.update(str(size).encode())
    with path.open("rb") as file:
        file.seek(8 + len(header))
        digest.update(file.read(_SAMPLE_BYTES))
        file.seek(max(size - _SAMPLE_BYTES, 0))
        digest.update(file.read(_SAMPLE_BYTES))
