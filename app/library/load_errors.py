"""Why models could not be loaded, as long as they are what they were then. Qt-free."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

from app.library.scan import look_at
from engine.api.errors import ErrorInfo
from engine.api.model_files import ModelIdentity


class LoadErrors:
    """Of this run, by the path that was asked for."""

    def __init__(self) -> None:
        self._errors: dict[str, ErrorInfo] = {}
        self._tried: dict[str, _Tried] = {}

    @property
    def errors(self) -> Mapping[str, ErrorInfo]:
        """Until a model is tried again, or its files are others."""
        return self._errors

    def trying(self, path: str, place: Path) -> None:
        """The model at ``path`` is loaded now. ``place``: where its files lie."""
        self._errors.pop(path, None)
        tried = self._tried[path] = _Tried()
        # A disk of the network may take its time.
        threading.Thread(target=tried.look, args=(place,), name="model-look", daemon=True).start()

    def failed(self, path: str, error: ErrorInfo) -> None:
        """The load of the model at ``path`` has failed."""
        self._errors[path] = error

    def drop_outdated(self, found: Mapping[str, ModelIdentity]) -> bool:
        """Forgets why models failed that are others now. ``found``: as they are, by path. True if
        there was one.
        """
        outdated = [
            path
            for path in self._errors
            if path in found and path in self._tried and self._tried[path].differs(found[path])
        ]
        for path in outdated:
            del self._errors[path]
        return bool(outdated)


class _Tried:
    """What a model was when it was tried."""

    def __init__(self) -> None:
        self._identity: ModelIdentity | None = None

    def look(self, place: Path) -> None:
        self._identity = look_at(place).identity

    def differs(self, found: ModelIdentity) -> bool:
        if self._identity is None:
            # Nobody could tell so far: it counts from now on.
            self._identity = found
        return self._identity != found
