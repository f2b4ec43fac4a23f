"""Opens a model: a Hugging Face folder, or a GGUF file that is expanded into one first."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine.api.errors import ModelFileError, ModelNotFoundError
from engine.chat_template import ChatTemplate
from engine.loading.progress import (
    Cancelled,
    Progress,
    check_cancelled,
    never_cancelled,
    no_progress,
)
from engine.loading.safetensors_file import TensorEntry, read_header
from engine.loading.source import Source, expanded_folder, is_expanded, read_source
from engine.models.config import ModelConfig
from engine.models.hf_config import read_config, read_json
from engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    import torch

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_SAMPLE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class LoadedFiles:
    """A model's files, checked, with nothing large in memory yet.

    ``entries``: every tensor's dtype and shape under its Hugging Face name. ``fingerprint``: the
    weights' identity, the same wherever the folder lies.
    """

    config: ModelConfig
    folder: Path
    files: tuple[Path, ...]
    entries: dict[str, TensorEntry]
    fingerprint: str
    license: str

    @property
    def num_parameters(self) -> int:
        """Number of weights; a tied output layer counts once."""
        return sum(entry.num_elements for entry in self.entries.values())

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
) -> LoadedFiles:
    """Opens a folder, or a GGUF file, which is expanded into ``models_dir`` the first time.

    Raises:
        ModelNotFoundError: nothing there, or a folder without config.json or weights.
        ModelFileError: truncated, foreign or damaged.
        UnsupportedModelError: an architecture, variant or tokenizer that we do not know.
        ModelFetchError: no room for the expanded model.
        LoadCancelledError: ``cancelled()`` became true.
    """
    check_cancelled(cancelled)
    if not path.exists():
        raise ModelNotFoundError(f"There is no model at {path}.", path=str(path))
    try:
        if path.is_dir():
            return _open_folder(path)
        source = Source.of(path)
        folder = expanded_folder(source, models_dir)
        if not is_expanded(folder, source):
            # Only here: what is expanded needs neither the gguf package nor its reader's seconds.
            from engine.loading.gguf_model import expand

            folder = expand(path, models_dir, progress, cancelled)
        return _open_folder(folder)
    except OSError as error:
        raise ModelFileError(
            f"{path} cannot be read: {error.strerror or error}.",
            action="Check the file and its permissions, or choose another model.",
        ) from error


def _open_folder(folder: Path) -> LoadedFiles:
    config = read_config(folder)
    files = _weight_files(folder)
    entries: dict[str, TensorEntry] = {}
    digest = hashlib.sha256()
    for path in files:
        found, header = read_header(path)
        entries.update(found)
        _add_identity(digest, path, header)
    source = read_source(folder)
    if source is not None:
        # The samples below say as much, but not where the values in between came from.
        digest.update(str(source.get("sha256", "")).encode())
    return LoadedFiles(
        config=config,
        folder=folder,
        files=files,
        entries=entries,
        fingerprint=digest.hexdigest(),
        license=_license(folder),
    )


def _weight_files(folder: Path) -> tuple[Path, ...]:
    index = read_json(folder / _INDEX)
    if index is None:
        names = [_SINGLE]
    else:
        weight_map = index.get("weight_map")
        if not isinstance(weight_map, dict):
            raise ModelFileError(f"{_INDEX} is damaged: it has no weight_map.")
        # A name with a folder in it could point outside the model.
        names = sorted({Path(str(name)).name for name in weight_map.values()})
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ModelNotFoundError(
            f"{len(missing)} of {len(names)} weight files are missing in {folder}, "
            f"{missing[0]} first.",
            action="Fetch the missing files; weights must be in the safetensors format.",
            missing=len(missing),
        )
    return tuple(folder / name for name in names)


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


def _license(folder: Path) -> str:
    source = read_source(folder)
    if source is not None:
        return str(source.get("license", ""))
    readme = folder / "README.md"
    if not readme.is_file():
        return ""
    lines = readme.read_text(encoding="utf-8", errors="replace").splitlines()[:80]
    if not lines or lines[0].strip() != "---":
        return ""
    for line in lines[1:]:
        if line.strip() == "---":
            break
        if line.startswith("license:"):
            return line.partition(":")[2].strip()
    return ""
