"""What the engine has said of models, and what is still to be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from app.conversation import new_id
from app.library.scan import FoundModel
from engine.api.commands import Command, DescribeModel
from engine.api.errors import ErrorInfo
from engine.api.events import CommandFailed, Event, ModelDescribed
from engine.api.model_description import ModelDescription
from engine.api.model_files import ModelIdentity
from engine.api.params import EngineConfig

_NOT_ITS_FAULT = frozenset(
    {"interrupted", "query_cancelled", "not_supported_yet", "engine_died", "engine_stopped"}
)
"""Errors that say nothing of the model."""
_STALE = ModelIdentity(-1, -1)

Said = ModelDescription | ErrorInfo


@dataclass(frozen=True, slots=True)
class _Question:
    command_id: str
    path: str
    identity: ModelIdentity
    config: EngineConfig


class Descriptions:
    """Asks one question at a time: what is wanted first need then not wait for all others."""

    def __init__(self, send: Callable[[Command], None]) -> None:
        self._send = send
        self._known: dict[str, tuple[ModelIdentity, EngineConfig, Said]] = {}
        self._deferred: set[str] = set()
        self._asked: _Question | None = None

    def of(self, path: str) -> Said | None:
        """What was said last, if it is not the newest too."""
        known = self._known.get(path)
        return None if known is None else known[2]

    def ask_next(
        self, models: Iterable[FoundModel], config_for: Callable[[str], EngineConfig]
    ) -> None:
        """Asks about the first of ``models`` that is not known as it is now."""
        if self._asked is not None:
            return
        for model in models:
            config = config_for(model.path)
            known = self._known.get(model.path)
            is_known = known is not None and known[:2] == (model.identity, config)
            if model.exists and not is_known and model.path not in self._deferred:
                self._asked = _Question(new_id(), model.path, model.identity, config)
                self._send(DescribeModel(model.path, config, command_id=self._asked.command_id))
                return

    def handle(self, event: Event) -> bool:
        """Takes a reply; True if it was one, and the next question can be asked."""
        asked = self._asked
        if asked is None or not isinstance(event, ModelDescribed | CommandFailed):
            return False
        if event.command_id != asked.command_id:
            return False
        self._asked = None
        if isinstance(event, CommandFailed) and event.error.code in _NOT_ITS_FAULT:
            self._deferred.add(asked.path)
        else:
            said = event.description if isinstance(event, ModelDescribed) else event.error
            self._known[asked.path] = (asked.identity, asked.config, said)
        return True

    def try_deferred(self) -> None:
        """Questions that came to nothing may be asked again."""
        self._deferred.clear()

    def give_up(self) -> None:
        """Nobody will answer any more."""
        self._asked = None

    def forget(self, path: str) -> None:
        """A model is asked about as if for the first time."""
        self._known.pop(path, None)

    def make_stale(self) -> None:
        """Everything is asked again, and stays as it was said until then."""
        self._known = {
            path: (_STALE, config, said) for path, (_, config, said) in self._known.items()
        }
