"""A model's facts from the headers of its files, before anything large is read. No torch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from engine.api.errors import ModelFileError, ModelNotFoundError
from engine.api.model_description import DescriptionNote
from engine.api.model_files import ModelIdentity, model_identity
from engine.loading.describe_gguf import gguf_facts
from engine.loading.model_folder import folder_license
from engine.loading.plain_errors import plain_errors
from engine.loading.plain_text import plain_text
from engine.loading.progress import Breathe, no_breath
from engine.loading.safetensors_file import DTYPE_BITS
from engine.loading.stored import StoredTensor, count_weights, quantization_of
from engine.loading.weight_files import (
    check_types,
    pickled_files,
    read_weight_files,
    refuse_pickle,
)
from engine.models.config import ModelConfig
from engine.models.families import family_of
from engine.models.hf_config import read_config
from engine.template_files import (
    TOKENIZER_CONFIG,
    contains,
    has_template,
    require_tokenizer,
)

_CODE_ENTRY = re.compile(rb'"auto_map"\s*:\s*\{\s*"')


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model is. ``tensors``: its weights as they lie on the disk, under Hugging Face's
    names; those that are not needed are left out. The other fields as in ``ModelDescription``.
    """

    config: ModelConfig
    name: str
    family: str
    license: str
    format: str
    quantization: str
    num_parameters: int
    identity: ModelIdentity
    has_chat_template: bool
    tensors: tuple[StoredTensor, ...]
    notes: tuple[DescriptionNote, ...]


def describe(path: Path, breathe: Breathe = no_breath) -> ModelFacts:
    """The facts of the model at ``path``, a GGUF file or a Hugging Face folder.

    Args:
        path: where it lies; any part of a GGUF in several files.
        breathe: called between short pieces of work; what it raises ends it.

    Raises:
        ModelNotFoundError: nothing there, or a folder without config.json or weights.
        ModelFileError: truncated, foreign or damaged.
        UnsupportedModelError: an architecture, variant or type of weights that we do not know.
    """
    try:
        if not path.exists():
            raise ModelNotFoundError(f"There is no model at {path}.", path=str(path))
        identity = model_identity(path)
        look = _folder if path.is_dir() else _file
        with plain_errors():
            return look(path, identity, breathe)
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read: {error.strerror or error}.",
            action="Check the file and its permissions, or choose another model.",
        ) from error
    except ValueError as error:
        # Of a path that no system takes; all that is wrong with a file has an error of its own.
        raise ModelNotFoundError(f"{plain_text(str(path))} is no path: {error}.") from error


def family_title(architecture: str) -> str:
    """A family's name for people: ``Gemma 3`` of ``Gemma3ForCausalLM``."""
    name = re.sub(r"For[A-Z]\w*$", "", architecture)
    return re.sub(r"(?<=[A-Za-z])(?=\d)", " ", name)


def _folder(folder: Path, identity: ModelIdentity, breathe: Breathe) -> ModelFacts:
    config = read_config(folder)
    breathe()
    weights = read_weight_files(folder)
    require_tokenizer(folder)
    ignored = family_of(config).ignored_suffixes
    check_types(weights.entries, ignored)
    breathe()
    tensors = tuple(
        StoredTensor(
            name, entry.dtype, entry.shape, -(-entry.num_elements * DTYPE_BITS[entry.dtype] // 8)
        )
        for name, entry in weights.entries.items()
        if not name.endswith(ignored)
    )
    return _facts(
        config,
        config.name,
        folder_license(folder),
        "safetensors",
        identity,
        has_template(folder),
        tensors,
        quantization_of(tensors),
        _notes(folder),
    )


def _file(path: Path, identity: ModelIdentity, breathe: Breathe) -> ModelFacts:
    refuse_pickle(path.name)
    found = gguf_facts(path, breathe)
    return _facts(
        found.config,
        found.name,
        found.license,
        "gguf",
        identity,
        found.has_chat_template,
        found.tensors,
        found.quantization,
        [],
    )


def _facts(
    config: ModelConfig,
    name: str,
    license_name: str,
    form: str,
    identity: ModelIdentity,
    has_chat_template: bool,
    tensors: tuple[StoredTensor, ...],
    quantization: str,
    notes: Iterable[DescriptionNote],
) -> ModelFacts:
    return ModelFacts(
        config=config,
        name=plain_text(name),
        family=family_title(config.architecture),
        license=plain_text(license_name),
        format=form,
        quantization=quantization,
        num_parameters=count_weights(tensors, config),
        identity=identity,
        has_chat_template=has_chat_template,
        tensors=tensors,
        notes=tuple(notes),
    )


def _notes(folder: Path) -> list[DescriptionNote]:
    notes = []
    files = (folder / "config.json", folder / TOKENIZER_CONFIG)
    if any(contains(file, _CODE_ENTRY) for file in files):
        notes.append(DescriptionNote.REMOTE_CODE)
    if pickled_files(folder):
        notes.append(DescriptionNote.PICKLED)
    return notes
