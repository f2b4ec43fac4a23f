"""A GGUF's facts from its headers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.api.errors import ModelFileError
from engine.loading.gguf_config import ARCHITECTURES, ROPE_TENSORS, hf_config
from engine.loading.gguf_header import Elsewhere
from engine.loading.gguf_names import placed
from engine.loading.gguf_parts import read_gguf, whole_name
from engine.loading.progress import Breathe
from engine.loading.stored import StoredTensor, quantization_of
from engine.models.config import ModelConfig
from engine.models.hf_config import config_from_hf

_TOKENS = "tokenizer.ggml.tokens"
_TEMPLATE = "tokenizer.chat_template"
_MAX_FACTORS = 4096

_FILE_TYPE = "general.file_type"
_MIXTURES = {
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
}
"""Names of mixtures of types, by llama.cpp's numbers of them; people look for these."""


@dataclass(frozen=True, slots=True)
class GgufFacts:
    """``name``: that of its file, or what its files have in common. ``tensors``: those of the
    model, under Hugging Face's names. ``quantization``: the usual name of their types.
    """

    name: str
    config: ModelConfig
    license: str
    has_chat_template: bool
    tensors: tuple[StoredTensor, ...]
    quantization: str


def gguf_facts(path: Path, breathe: Breathe) -> GgufFacts:
    """The facts of the GGUF that the file at ``path`` is, or is a part of.

    Raises:
        ModelFileError: truncated, foreign or damaged, or a part is missing; the error names the
            file, and the offset or the tensor.
        UnsupportedModelError: an architecture or variant that we do not know.
        OSError: the file cannot be read.
    """
    found = read_gguf(path, breathe)
    name = Path(whole_name(path)).stem
    metadata = dict(found.header.metadata)
    architecture = str(metadata.get("general.architecture", ""))
    tokens = metadata.get(_TOKENS)
    if isinstance(tokens, Elsewhere) and architecture in ARCHITECTURES:
        metadata.setdefault(f"{architecture}.vocab_size", tokens.count)
    names = {tensor.name for tensor in found.tensors}
    # Their values change what is computed and not how large anything is.
    factors = {
        tensor.name: [1.0] * min(tensor.num_elements, _MAX_FACTORS)
        for tensor in found.tensors
        if tensor.name in ROPE_TENSORS
    }
    try:
        config = config_from_hf(hf_config(metadata, names, factors), default_name=name)
    except ModelFileError as error:
        raise ModelFileError(
            f"The entries of {found.paths[0].name}, which end at byte "
            f"{found.header.metadata_end:,}, describe no model: {error.message}"
        ) from error
    tensors = tuple(
        StoredTensor(place.name, tensor.type.name, tensor.shape, tensor.nbytes)
        for place, tensor in placed(found.tensors, config, architecture)
    )
    return GgufFacts(
        name=name,
        config=config,
        license=str(metadata.get("general.license") or ""),
        has_chat_template=bool(metadata.get(_TEMPLATE)),
        tensors=tensors,
        quantization=_quantization(metadata.get(_FILE_TYPE), tensors),
    )


def _quantization(file_type: Any, tensors: Iterable[StoredTensor]) -> str:
    """Of a mixture its name: a small model's largest part may well be of another type."""
    name = _MIXTURES.get(file_type) if isinstance(file_type, int) else None
    return name or quantization_of(tensors)
