"""What the user has told the library: folders, single files, chat templates by model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from app.stored_json import stored_object
from engine.api.model_files import files_of_gguf


class Places:
    """Kept as one JSON text. ``save`` is called with it after each change."""

    def __init__(self, stored: str, save: Callable[[str], None]) -> None:
        """``stored``: what ``save`` was called with last; anything else counts as nothing."""
        values = stored_object(stored)
        self._save = save
        self._folders = _texts(values.get("folders"))
        self._files = _texts(values.get("files"))
        self._hidden = set(_texts(values.get("hidden")))
        self._templates = _by_path(values.get("chat_templates"))

    @property
    def folders(self) -> tuple[str, ...]:
        """Watched folders besides the model folder, in the order that they were added."""
        return tuple(self._folders)

    @property
    def files(self) -> tuple[str, ...]:
        """Models that were opened by their path."""
        return tuple(self._files)

    @property
    def hidden(self) -> frozenset[str]:
        """Models that the user does not want to see, although they lie in a watched folder."""
        return frozenset(self._hidden)

    @property
    def chat_templates(self) -> Mapping[str, str]:
        """The chosen chat template by model; a model without one uses its own."""
        return self._templates

    def add_folder(self, folder: str) -> bool:
        """False if it is watched already."""
        if any(same_place(folder, known) for known in self._folders):
            return False
        self._folders.append(folder)
        self._store()
        return True

    def remove_folder(self, folder: str) -> None:
        """Its models are no longer listed; nothing is deleted."""
        self._folders = [known for known in self._folders if not same_place(folder, known)]
        self._store()

    def add_file(self, path: str) -> None:
        """Lists a model that no watched folder has, and shows it again if it was taken out."""
        self._hidden.discard(path)
        if path not in self._files:
            self._files.append(path)
        self._store()

    def show(self, path: str) -> None:
        """Lists a model of a watched folder again if it was taken out."""
        if path in self._hidden:
            self._hidden.discard(path)
            self._store()

    def remove(self, path: str, is_in_folder: bool) -> None:
        """Takes a model off the list; nothing is deleted.

        ``is_in_folder``: it would be found again.
        """
        self._files = [known for known in self._files if known != path]
        if is_in_folder:
            self._hidden.add(path)
        self._store()

    def show_all(self) -> None:
        """Lists again what was taken out."""
        self._hidden.clear()
        self._store()

    def set_chat_template(self, path: str, name: str) -> None:
        """Empty for the model's own."""
        if name:
            self._templates[path] = name
        else:
            self._templates.pop(path, None)
        self._store()

    def _store(self) -> None:
        values = {
            "folders": self._folders,
            "files": self._files,
            "hidden": sorted(self._hidden),
            "chat_templates": self._templates,
        }
        self._save(json.dumps(values, ensure_ascii=False))


def model_of(chosen: str) -> str:
    """The model that a chosen file belongs to: of a safetensors file, its folder; of a part of a
    GGUF, the first part that is there.
    """
    path = Path(chosen)
    if path.suffix.lower() == ".safetensors":
        return str(path.parent)
    return str(next(filter(Path.is_file, files_of_gguf(path)), path))


def same_place(one: str, other: str) -> bool:
    """Whether two paths name the same file or folder, which need not exist."""
    return os.path.normcase(os.path.realpath(one)) == os.path.normcase(os.path.realpath(other))


def _texts(values: Any) -> list[str]:
    if not isinstance(values, list):
        return []
    return list(dict.fromkeys(value for value in values if isinstance(value, str) and value))


def _by_path(values: Any) -> dict[str, str]:
    if not isinstance(values, dict):
        return {}
    return {path: name for path, name in values.items() if isinstance(name, str) and name}
