"""A GGUF in one file or in several.

llama.cpp's gguf-split and the gguf package write large models as ``<stem>-00001-of-00003.gguf`` and
so on. Each part is a GGUF file with the entries ``split.no`` (from 0), ``split.count`` and
``split.tensors.count`` (of all parts). The first has all other entries too, and maybe no tensors.
https://github.com/ggml-org/llama.cpp/blob/master/tools/gguf-split/gguf-split.cpp
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.api.errors import ModelFileError, ModelPartsMissingError
from engine.api.model_files import PartName, files_of_gguf
from engine.loading.gguf_header import GgufHeader, GgufTensor, read_gguf_header
from engine.loading.gguf_window import damaged
from engine.loading.plain_text import plain_text
from engine.loading.progress import Breathe, no_breath

_NO, _COUNT, _TENSORS = "split.no", "split.count", "split.tensors.count"
_NAMED_NUMBERS = 8


@dataclass(frozen=True, slots=True)
class Gguf:
    """``paths``: its files, in order. ``header``: of the first, whose metadata are the model's.
    ``tensors``: those of all files; ``GgufTensor.part`` is an index of ``paths``.
    """

    paths: tuple[Path, ...]
    header: GgufHeader
    tensors: tuple[GgufTensor, ...]


def gguf_files(path: Path) -> tuple[Path, ...]:
    """The files of the GGUF that ``path`` is, or is any part of, in order.

    Raises:
        ModelPartsMissingError: some of them are not beside ``path``.
    """
    paths = files_of_gguf(path)
    missing = [number for number, file in enumerate(paths, 1) if not file.is_file()]
    if len(paths) > 1 and missing:
        raise _missing(paths, missing)
    return tuple(paths)


def whole_name(path: Path) -> str:
    """The name of a file; of a part, what the names of all parts have in common."""
    part = PartName.of(path.name)
    return path.name if part is None else part.whole


def read_gguf(path: Path, breathe: Breathe = no_breath) -> Gguf:
    """The headers of the GGUF that ``path`` is, or is any part of, checked one by one and against
    one another.

    ``breathe`` as ``read_gguf_header`` calls it.

    Raises:
        ModelFileError: a file is foreign, truncated or damaged, a part is missing or belongs to
            another model; the error names the file, and in it the offset, tensor or entry.
        UnsupportedModelError: a version or tensor type that we do not know.
        OSError: a file cannot be read.
    """
    paths = gguf_files(path)
    first = read_gguf_header(paths[0], breathe)
    if len(paths) == 1:
        _check_whole(paths[0], first)
        tensors = first.tensors
    else:
        tensors = _tensors_of_all(paths, first, breathe)
    if not tensors:
        raise damaged(paths[0], "it holds no tensors")
    return Gguf(paths, first, tensors)


def _tensors_of_all(
    paths: Sequence[Path], first: GgufHeader, breathe: Breathe
) -> tuple[GgufTensor, ...]:
    total = _check_part(paths, 0, first, None)
    holders: dict[str, Path] = {}
    found: list[GgufTensor] = []
    for index, path in enumerate(paths):
        header = read_gguf_header(path, breathe) if index else first
        if index:
            _check_part(paths, index, header, total)
        for tensor in header.tensors:
            if tensor.name in holders:
                raise damaged(
                    path,
                    f"tensor {plain_text(tensor.name)} is in {holders[tensor.name].name} already",
                )
            holders[tensor.name] = path
            found.append(replace(tensor, part=index))
        if len(found) > total:
            break
    if len(found) != total:
        raise ModelFileError(
            f"The parts up to {path.name} hold {len(found):,} tensors; by the entry {_TENSORS} all "
            f"{len(paths)} parts hold {total:,}.",
            expected_tensors=total,
            actual_tensors=len(found),
        )
    return tuple(found)


def _check_part(paths: Sequence[Path], index: int, header: GgufHeader, total: int | None) -> int:
    """Whether a part is what its name says. ``total``: the number of tensors that the first part
    tells of all. Returns the number that this one tells.
    """
    path = paths[index]
    count = _entry(path, header, _COUNT)
    if count != len(paths):
        raise _misnamed(path, _COUNT, count, f"one of {len(paths)}")
    number = _entry(path, header, _NO)
    if number != index:
        raise _misnamed(path, _NO, number, f"number {index + 1}, which has {index} there")
    tensors = _entry(path, header, _TENSORS)
    if tensors is None or tensors != (tensors if total is None else total):
        told = "" if total is None else f"; that of {paths[0].name} is {total:,}"
        raise damaged(path, f"the entry {_TENSORS} is {_shown(tensors)}{told}")
    return tensors


def _check_whole(path: Path, header: GgufHeader) -> None:
    """Refuses a part whose name does not tell where the others are."""
    count = _entry(path, header, _COUNT)
    if count is None or count <= 1:
        return
    number = _entry(path, header, _NO)
    which = "a part" if number is None else f"part {number + 1:,}"
    ending = f"-{(number or 0) + 1:05}-of-{count:05}.gguf"
    raise ModelFileError(
        f"{path.name} is {which} of {count:,} of a model by its entry {_COUNT}; the name of such a "
        f"part ends in {ending}, by which the others are found.",
        action="Give all parts the names that they were made with, and put them side by side.",
        parts=count,
    )


def _entry(path: Path, header: GgufHeader, key: str) -> int | None:
    """A whole number of the header, None if there is none."""
    value = header.metadata.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise damaged(path, f"the entry {key} is {plain_text(str(value), 20)}")
    return value


def _misnamed(path: Path, key: str, value: int | None, wanted: str) -> ModelFileError:
    return ModelFileError(
        f"{path.name} is not the part that its name says: its entry {key} is {_shown(value)}, its "
        f"name is that of {wanted}.",
        action="Give the parts the names that they were made with, or fetch this one again.",
    )


def _shown(value: int | None) -> str:
    return "missing" if value is None else f"{value:,}"


def _missing(paths: Sequence[Path], missing: Sequence[int]) -> ModelPartsMissingError:
    numbers = ", ".join(map(str, missing[:_NAMED_NUMBERS]))
    if len(missing) > _NAMED_NUMBERS:
        numbers += ", …"
    are = "s {} of {} are" if len(missing) > 1 else " {} of {} is"
    return ModelPartsMissingError(
        f"Part{are.format(numbers, len(paths))} missing: "
        f"{plain_text(paths[missing[0] - 1].name)} is not beside the others.",
        parts=numbers,
        missing=len(missing),
        count=len(paths),
        name=paths[missing[0] - 1].name,
    )
