"""Expands a GGUF once into a Hugging Face folder that later starts open quickly.

Quantised values are expanded exactly (float32). Llama's query and key rows are stored in GGUF for
rotation of neighbouring pairs; they are brought back to the order of the two halves.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import gguf
import numpy as np
import numpy.typing as npt

from engine.api.errors import UnsupportedModelError
from engine.api.files import replace_file
from engine.loading.disk import partial_folder, require_free, writing_errors
from engine.loading.gguf_config import ROPE_TENSORS, hf_config
from engine.loading.gguf_header import GgufTensor
from engine.loading.gguf_metadata import full_metadata
from engine.loading.gguf_names import Place, placed
from engine.loading.gguf_parts import Gguf, read_gguf
from engine.loading.gguf_tokenizer import build_tokenizer, end_token_ids, tokenizer_config
from engine.loading.progress import (
    Cancelled,
    Progress,
    breathing,
    check_cancelled,
    never_cancelled,
    no_progress,
)
from engine.loading.safetensors_file import write_float32
from engine.loading.source import SOURCE_NAME, WEIGHTS_NAME, Source, expanded_folder, is_expanded
from engine.models.hf_config import config_from_hf

_TOKENIZER_SHARE_BYTES = 32 << 20
_PIECE_ELEMENTS = 2 << 20

Rows = npt.NDArray[np.uint8]
"""Of a tensor, as bytes in the file."""


def expand(
    path: Path,
    models_dir: Path,
    progress: Progress = no_progress,
    cancelled: Cancelled = never_cancelled,
    weights: bool = True,
) -> Path:
    """Expands the GGUF at ``path``, of which that may be a part, into a folder in ``models_dir``
    and returns the folder.

    ``weights``: else the folder has all but them, for somebody who reads them from the file.

    It appears whole or not at all, also when two processes expand the same file at once.

    Raises:
        ModelFileError: foreign, truncated or damaged, or a part is missing.
        UnsupportedModelError: an architecture or tokenizer that we do not know.
        ModelFetchError: no room on the disk, or the model folder cannot be written to.
        LoadCancelledError: ``cancelled()`` became true.
    """
    breathe = breathing(cancelled)
    found = read_gguf(path, breathe)
    source = Source.of(*found.paths)
    folder = expanded_folder(source, models_dir)
    progress("read", 0.0, source.name)
    metadata = full_metadata(found.paths[0], found.header, breathe)
    with writing_errors(models_dir, f"expanding {source.name}"):
        models_dir.mkdir(parents=True, exist_ok=True)
        _expand_into(folder, found, metadata, source, progress, cancelled, weights)
    return folder


def _expand_into(
    folder: Path,
    found: Gguf,
    metadata: Mapping[str, Any],
    source: Source,
    progress: Progress,
    cancelled: Cancelled,
    weights: bool,
) -> None:
    data = [np.memmap(path, dtype=np.uint8, mode="r") for path in found.paths]
    names = {tensor.name for tensor in found.tensors}
    config = hf_config(metadata, names, _rope_factors(found.tensors, data))
    architecture = str(metadata["general.architecture"])
    tensors = placed(found.tensors, config_from_hf(config), architecture)
    needed = _TOKENIZER_SHARE_BYTES
    if weights:
        needed += sum(4 * tensor.num_elements for tensor in found.tensors)
    require_free(folder.parent, needed, f"the expanded {source.name}")
    with partial_folder(folder.parent) as partial:
        progress("tokenizer", 0.0, source.name)
        tokenizer = build_tokenizer(metadata, breathing(cancelled))
        tokenizer.save(str(partial / "tokenizer.json"), pretty=False)
        check_cancelled(cancelled)
        _write_json(partial / "tokenizer_config.json", tokenizer_config(metadata))
        _write_json(partial / "config.json", {**config, "name": Path(source.name).stem})
        generation = {"eos_token_id": end_token_ids(metadata)}
        _write_json(partial / "generation_config.json", generation)
        if weights:
            write_float32(
                partial / WEIGHTS_NAME,
                {place.name: place.shape for place, _ in tensors},
                _expanded(tensors, data, config["head_dim"], source.name, progress, cancelled),
            )
        license_name = str(metadata.get("general.license") or "")
        finished = source.with_full_digest(license_name, progress, cancelled)
        _write_json(partial / SOURCE_NAME, finished.to_json())
        check_cancelled(cancelled)
        _publish(partial, folder, source, weights)


def _publish(partial: Path, folder: Path, source: Source, weights: bool) -> None:
    """Gives the finished folder its name, replacing a damaged or older one."""
    if folder.exists():
        if is_expanded(folder, source, weights):
            return  # another process was quicker
        old = partial.with_name(f"{partial.name}-old")
        replace_file(folder, old)
        replace_file(partial, folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        replace_file(partial, folder)


def _rope_factors(tensors: Sequence[GgufTensor], data: Sequence[Rows]) -> dict[str, list[float]]:
    return {
        tensor.name: [float(value) for value in _dequantised(tensor, _rows(tensor, data)).flat]
        for tensor in tensors
        if tensor.name in ROPE_TENSORS
    }


def _expanded(
    tensors: Sequence[tuple[Place, GgufTensor]],
    data: Sequence[Rows],
    head_dim: int,
    detail: str,
    progress: Progress,
    cancelled: Cancelled,
) -> Iterator[npt.NDArray[np.float32]]:
    """All values in order, a few rows at a time, so that little of them is in memory at once."""
    total = sum(tensor.num_elements for _, tensor in tensors)
    done = 0
    for place, tensor in tensors:
        flat = len(tensor.dims) == 1
        # A head's rows change places among themselves, so they have to come together.
        unit = head_dim if place.in_pairs and not flat else 1
        rows = _rows(tensor, data)
        step = max(_PIECE_ELEMENTS // tensor.dims[0] // unit, 1) * unit
        for start in range(0, len(rows), step):
            check_cancelled(cancelled)
            progress("expand", done / total, detail)
            values = _dequantised(tensor, rows[start : start + step])
            if place.in_pairs:
                values = _halves_from_pairs(values.T if flat else values, head_dim)
            yield values - place.offset if place.offset else values
            done += values.size
    progress("expand", 1.0, detail)


def _rows(tensor: GgufTensor, data: Sequence[Rows]) -> Rows:
    """``[rows, bytes of a row]``; of a vector one row. ``data``: the files."""
    raw = data[tensor.part][tensor.offset : tensor.offset + tensor.nbytes]
    return raw.reshape(tensor.num_elements // tensor.dims[0], -1)


def _dequantised(tensor: GgufTensor, rows: Rows) -> npt.NDArray[np.float32]:
    kind = tensor.type.name
    try:
        values = gguf.dequantize(rows, gguf.GGMLQuantizationType[kind])
    except (NotImplementedError, KeyError) as error:
        raise UnsupportedModelError(
            f"Tensor {tensor.name} is quantised as {kind}, which cannot be expanded.",
            action="Choose another quantisation of this model, for instance Q8_0 or Q4_K_M.",
            tensor_type=kind,
        ) from error
    return cast("npt.NDArray[np.float32]", values)


def _halves_from_pairs(rows: npt.NDArray[np.float32], head_dim: int) -> npt.NDArray[np.float32]:
    """Rows [heads·head_dim, in]: GGUF interleaves the two halves of a head, HF does not."""
    pairs = rows.reshape(-1, head_dim // 2, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.transpose(0, 2, 1, 3)).reshape(rows.shape)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False), encoding="utf-8")
