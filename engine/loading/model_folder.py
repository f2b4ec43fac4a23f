"""Opens a model: a Hugging Face folder, or a GGUF that is expanded into one first."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine.api.errors import ModelFileError, ModelNotFoundError
from engine.chat_template import ChatTemplate
from engine.loading.gguf_parts import gguf_files
from engine.loading.plain_errors import plain_errors
from engine.loading.plain_text import plain_text
from engine.loading.progress import (
    Breathe,
    Cancelled,
    Progress,
    check_cancelled,
    never_cancelled,
    no_breath,
    no_progress,
)
from engine.loading.safetensors_file import TensorEntry
from engine.loading.source import Source, expanded_folder, is_expanded, read_source
from engine.loading.weight_files import check_types, read_weight_files, refuse_pickle
from engine.models.config import ModelConfig
from engine.models.families import family_of
from engine.models.hf_config import read_config
from engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

    from engine.loading.gguf_weights import GgufWeights
    from engine.quantized.grouped import GroupedWeight

_README_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """A model's files, checked, with nothing large in memory yet.

    ``entries``: every tensor's dtype and shape under its Hugging Face name. ``fingerprint``: the
    weights' identity, the same wherever the folder lies. ``kept``: the weights in a GGUF file,
    where they are read from there; ``folder`` has all the rest then.
    """

    config: ModelConfig
    folder: Path
    files: tuple[Path, ...]
    entries: dict[str, TensorEntry]
    fingerprint: str
    license: str
    kept: GgufWeights | None = None

    @property
    def num_parameters(self) -> int:
        """Number of weights; a tied output layer counts once, also where the files repeat it."""
        tied = f"{family_of(self.config).lm_head}.weight"
        return sum(
            entry.num_elements
            for name, entry in self.entries.items()
            if name != tied or not self.config.tie_word_embeddings
        )

    def kept_weights(
        self, dtype: torch.dtype, breathe: Breathe = no_breath
    ) -> Iterator[tuple[str, torch.Tensor | GroupedWeight]]:
        """As ``weights``, quantised as in the file where they are read from a GGUF file; what of
        that cannot be kept is expanded to ``dtype``. ``breathe`` is called now and then within a
        tensor.
        """
        return self.weights() if self.kept is None else self.kept.read(dtype, breathe)

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Names and tensors, one at a time, memory-mapped: copy what should outlive the file.

        Raises:
            ModelFileError: a file became unreadable.
        """
        from safetensors import SafetensorError, safe_open

        for path in self.files:
            try:
                with safe_open(path, framework="pt") as file:
                    for name in file.keys():  # noqa: SIM118 - a handle, not a dict
                        yield name, file.get_tensor(name)
            except (SafetensorError, OSError) as error:
                raise ModelFileError(f"{path.name} cannot be read: {error}.") from error

    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            UnsupportedModelError: no tokenizer.json, or one of a kind that we do not know.
            ModelFileError: tokenizer.json is damaged.
        """
        return Tokenizer.from_folder(self.folder, self.config.eos_token_ids, self.config.vocab_size)

    def chat_template(self) -> ChatTemplate | None:
        """The model's chat template, or None if it has none.

        Raises:
            ChatTemplateError: it has a syntax error.
        """
        return ChatTemplate.from_folder(self.folder)


def open_model(
    path: Path,
    models_dir: Path,
    progress: Progress = no_progress,
    cancelled: Cancelled = never_cancelled,
    keep_quantized: bool = False,
) -> LoadedFiles:
    """Opens a folder, or a GGUF, which is expanded into ``models_dir`` the first time. Of a GGUF in
    several files any one will do.

    ``keep_quantized``: the weights of a GGUF are not expanded, but read from where they are.

    Raises:
        ModelNotFoundError: nothing there, or a folder without config.json or weights.
        ModelFileError: truncated, foreign or damaged, or a part is missing.
        UnsupportedModelError: an architecture, variant or tokenizer that we do not know.
        ModelFetchError: no room for the expanded model.
        LoadCancelledError: ``cancelled()`` became true.
    """
    check_cancelled(cancelled)
    if not path.exists():
        raise ModelNotFoundError(f"There is no model at {path}.", path=str(path))
    try:
        with plain_errors():
            if path.is_dir():
                return _open_folder(path)
            return _open_file(path, models_dir, progress, cancelled, keep_quantized)
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read: {error.strerror or error}.",
            action="Check the file and its permissions, or choose another model.",
        ) from error


def _open_file(
    path: Path, models_dir: Path, progress: Progress, cancelled: Cancelled, keep_quantized: bool
) -> LoadedFiles:
    refuse_pickle(path.name)
    source = Source.of(*gguf_files(path))
    folder = expanded_folder(source, models_dir)
    if not is_expanded(folder, source, not keep_quantized, progress, cancelled):
        # Only here: what is expanded needs neither the gguf package nor its reader's seconds.
        from engine.loading.gguf_model import expand

        folder = expand(path, models_dir, progress, cancelled, not keep_quantized)
    return _open_kept(path, folder) if keep_quantized else _open_folder(folder)


def _open_kept(path: Path, folder: Path) -> LoadedFiles:
    from engine.loading.gguf_weights import GgufWeights

    config = _config_of(folder)
    kept = GgufWeights.of(path, config)
    source = read_source(folder) or {}
    # Other values of keys and values come of it than of the same weights expanded.
    identity = hashlib.sha256(f"kept {source.get('sha256', '')}".encode())
    return LoadedFiles(
        config=config,
        folder=folder,
        files=kept.paths,
        entries={
            place.name: TensorEntry(tensor.type.name, place.shape) for place, tensor in kept.tensors
        },
        fingerprint=identity.hexdigest(),
        license=folder_license(folder),
        kept=kept,
    )


def _config_of(folder: Path) -> ModelConfig:
    config = read_config(folder)
    # It stands in the window and in errors.
    return replace(config, name=plain_text(config.name))


def _open_folder(folder: Path) -> LoadedFiles:
    config = _config_of(folder)
    weights = read_weight_files(folder)
    check_types(weights.entries, family_of(config).ignored_suffixes)
    source = read_source(folder)
    if source is not None:
        # The samples say as much, but not where the values in between came from.
        weights.digest.update(str(source.get("sha256", "")).encode())
    return LoadedFiles(
        config=config,
        folder=folder,
        files=weights.paths,
        entries=weights.entries,
        fingerprint=weights.digest.hexdigest(),
        license=folder_license(folder),
    )


def folder_license(folder: Path) -> str:
    """What the folder's files name as the model's license, as plain text; empty if nothing."""
    source = read_source(folder)
    if source is not None:
        return plain_text(str(source.get("license", "")))
    readme = folder / "README.md"
    if not readme.is_file():
        return ""
    with readme.open("rb") as file:
        head = file.read(_README_BYTES)
    lines = head.decode("utf-8", "replace").splitlines()[:80]
    if not lines or lines[0].strip() != "---":
        return ""
    for line in lines[1:]:
        if line.strip() == "---":
            break
        if line.startswith("license:"):
            return plain_text(line.partition(":")[2].strip().strip("\"'"))
    return ""
