"""Expands a GGUF file once into a Hugging Face folder that later starts open quickly.

Quantised values are expanded exactly (float32). Llama's query and key rows are stored in GGUF for
rotation of neighbouring pairs; they are brought back to the order of the two halves.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import gguf
import numpy as np
import numpy.typing as npt

from engine.api.errors import ModelFileError, UnsupportedModelError
from engine.loading.disk import partial_folder, require_free, writing_errors
from engine.loading.gguf_config import DIVISORS_TENSOR, hf_config
from engine.loading.gguf_header import check_gguf, damaged
from engine.loading.gguf_names import Place, places
from engine.loading.gguf_tokenizer import build_tokenizer, end_token_ids, tokenizer_config
from engine.loading.progress import (
    Cancelled,
    Progress,
    check_cancelled,
    never_cancelled,
    no_progress,
)
from engine.loading.safetensors_file import write_float32
from engine.loading.source import SOURCE_NAME, Source, expanded_folder, is_expanded
from engine.models.hf_config import config_from_hf

_TOKENIZER_SHARE_BYTES = 32 << 20
_PIECE_ELEMENTS = 4 << 20


def expand(
    path: Path,
    models_dir: Path,
    progress: Progress = no_progress,
    cancelled: Cancelled = never_cancelled,
) -> Path:
    """Expands ``path`` into a folder in ``models_dir`` and returns the folder.

    It appears whole or not at all, also when two processes expand the same file at once.

    Raises:
        ModelFileError: foreign, truncated or damaged.
        UnsupportedModelError: an architecture or tokenizer that we do not know.
        ModelFetchError: no room on the disk, or the model folder cannot be written to.
        LoadCancelledError: ``cancelled()`` became true.
    """
    check_gguf(path)
    source = Source.of(path)
    folder = expanded_folder(source, models_dir)
    progress("read", 0.0, path.name)
    reader, metadata = _read(path)
    check_cancelled(cancelled)
    with writing_errors(models_dir, f"expanding {path.name}"):
        models_dir.mkdir(parents=True, exist_ok=True)
        _expand_into(folder, reader, metadata, source, progress, cancelled)
    return folder


def _read(path: Path) -> tuple[gguf.GGUFReader, dict[str, Any]]:
    try:
        reader = gguf.GGUFReader(path)
        return reader, {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise damaged(path, str(error)) from error


def _expand_into(
    folder: Path,
    reader: gguf.GGUFReader,
    metadata: Mapping[str, Any],
    source: Source,
    progress: Progress,
    cancelled: Cancelled,
) -> None:
    names = {tensor.name for tensor in reader.tensors}
    config = hf_config(metadata, names, _rope_divisors(reader))
    tensors = _placed(reader, config, str(metadata["general.architecture"]))
    needed = sum(4 * tensor.n_elements for tensor in reader.tensors) + _TOKENIZER_SHARE_BYTES
    require_free(folder.parent, needed, f"the expanded {source.name}")
    with partial_folder(folder.parent) as partial:
        progress("tokenizer", 0.0, source.name)
        tokenizer = build_tokenizer(metadata)
        tokenizer.save(str(partial / "tokenizer.json"), pretty=False)
        _write_json(partial / "tokenizer_config.json", tokenizer_config(metadata))
        _write_json(partial / "config.json", {**config, "name": Path(source.name).stem})
        generation = {"eos_token_id": end_token_ids(metadata)}
        _write_json(partial / "generation_config.json", generation)
        write_float32(
            partial / "model.safetensors",
            {place.name: place.shape for place, _ in tensors},
            _expanded(tensors, config["head_dim"], source.name, progress, cancelled),
        )
        license_name = str(metadata.get("general.license") or "")
        finished = source.with_full_digest(license=license_name)
        _write_json(partial / SOURCE_NAME, finished.to_json())
        check_cancelled(cancelled)
        _publish(partial, folder, source)


def _publish(partial: Path, folder: Path, source: Source) -> None:
    """Gives the finished folder its name, replacing a damaged or older one."""
    if folder.exists():
        if is_expanded(folder, source):
            return  # another process was quicker
        old = partial.with_name(f"{partial.name}-old")
        os.replace(folder, old)
        os.replace(partial, folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(partial, folder)


def _rope_divisors(reader: gguf.GGUFReader) -> list[float]:
    for tensor in reader.tensors:
        if tensor.name == DIVISORS_TENSOR:
            return [float(value) for value in _dequantised(tensor, tensor.data[None])[0]]
    return []


def _placed(
    reader: gguf.GGUFReader, config: Mapping[str, Any], architecture: str
) -> list[tuple[Place, gguf.gguf_reader.ReaderTensor]]:
    """The file's tensors and where they go.

    Raises:
        UnsupportedModelError: a tensor that a model of this family does not have.
        ModelFileError: a tensor is missing, or its shape is not what the metadata say.
    """
    tensors = [tensor for tensor in reader.tensors if tensor.name != DIVISORS_TENSOR]
    expected = places(config_from_hf(config), architecture)
    for tensor in tensors:
        place = expected.get(tensor.name)
        if place is None:
            raise UnsupportedModelError(
                f"The model has a tensor {tensor.name}, which a model of the architecture "
                f"{architecture} with these metadata does not have.",
                tensor=tensor.name,
            )
        if _shape(tensor) != place.shape:
            raise ModelFileError(
                f"Tensor {tensor.name} has the shape {_shape(tensor)}; the file's metadata ask for "
                f"{place.shape}."
            )
    missing = sorted(expected[name].name for name in expected.keys() - {t.name for t in tensors})
    if missing:
        raise ModelFileError(
            f"The model lacks {len(missing)} of its {len(expected)} tensors, {missing[0]} first.",
            missing=len(missing),
        )
    return [(expected[tensor.name], tensor) for tensor in tensors]


def _expanded(
    tensors: Sequence[tuple[Place, gguf.gguf_reader.ReaderTensor]],
    head_dim: int,
    detail: str,
    progress: Progress,
    cancelled: Cancelled,
) -> Iterator[npt.NDArray[np.float32]]:
    """All values in order, a few rows at a time, so that little of them is in memory at once."""
    total = sum(tensor.n_elements for _, tensor in tensors)
    done = 0
    for place, tensor in tensors:
        flat = len(tensor.shape) == 1
        # A head's rows change places among themselves, so they have to come together.
        unit = head_dim if place.in_pairs and not flat else 1
        rows = tensor.data[None] if flat else tensor.data
        step = max(_PIECE_ELEMENTS // int(tensor.shape[0]) // unit, 1) * unit
        for start in range(0, len(rows), step):
            check_cancelled(cancelled)
            progress("expand", done / total, detail)
            values = _dequantised(tensor, rows[start : start + step])
            if place.in_pairs:
                values = _halves_from_pairs(values.T if flat else values, head_dim)
            yield values - place.offset if place.offset else values
            done += values.size
    progress("expand", 1.0, detail)


def _dequantised(
    tensor: gguf.gguf_reader.ReaderTensor, rows: npt.NDArray[Any]
) -> npt.NDArray[np.float32]:
    try:
        values = gguf.dequantize(rows, tensor.tensor_type)
    except NotImplementedError as error:
        kind = tensor.tensor_type.name
        raise UnsupportedModelError(
            f"Tensor {tensor.name} is quantised as {kind}, which cannot be expanded.",
            action="Choose another quantisation of this model, for instance Q8_0 or Q4_K_M.",
            tensor_type=kind,
        ) from error
    return cast("npt.NDArray[np.float32]", values)


def _shape(tensor: gguf.gguf_reader.ReaderTensor) -> tuple[int, ...]:
    """Rows first, as in the safetensors file; GGUF counts dimensions the other way round."""
    return tuple(int(size) for size in reversed(tensor.shape))


def _halves_from_pairs(rows: npt.NDArray[np.float32], head_dim: int) -> npt.NDArray[np.float32]:
    """Rows [heads·head_dim, in]: GGUF interleaves the two halves of a head, HF does not."""
    pairs = rows.reshape(-1, head_dim // 2, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3)).reshape(rows.shape)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")
