"""The place of the model in an engine thread."""

from __future__ import annotations

from dataclasses import dataclass

from engine.api.errors import NoModelError
from engine.model_loader import LoadedEngine, ModelLoader
from engine.snapshotter import Snapshotter


@dataclass(slots=True)
class Slot:
    """At most one of ``engine`` and ``loader`` is there. ``snapshotter`` is the engine's.

    ``checked``: nothing has changed since the engine's invariants were checked.
    ``ready``: nothing more can be prepared ahead of time, until steps show what else comes up.
    ``focus``: the conversation in front,
    also of engines to come.
    """

    engine: LoadedEngine | None = None
    snapshotter: Snapshotter | None = None
    loader: ModelLoader | None = None
    checked: bool = True
    ready: bool = False
    focus: str = ""

    def loaded(self) -> LoadedEngine:
        """Raises:
        NoModelError: nothing is loaded.
        """
        if self.engine is None:
            raise NoModelError("No model is loaded.")
        return self.engine
