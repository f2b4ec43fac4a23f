"""Where a changed setting goes: into the settings, or into one conversation's sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from app.i18n import tr
from app.session import Session
from app.settings import Settings, Values
from engine.api.errors import InvalidValueError
from engine.api.params import SamplingParams


class Target(Protocol):
    def value(self, path: str) -> Any:
        """The value now."""

    def default(self, path: str) -> Any:
        """What a reset goes back to."""

    def set(self, changes: Mapping[str, Any]) -> str:
        """Takes values by path, all or none. Empty, or why it cannot be, in words."""


class SettingsTarget:
    """The settings of the profile."""

    def __init__(self, session: Session, settings: Settings) -> None:
        self._session = session
        self._settings = settings

    def value(self, path: str) -> Any:
        return _of(self._settings.values, path)

    def default(self, path: str) -> Any:
        return _of(Values(), path)

    def set(self, changes: Mapping[str, Any]) -> str:
        values: dict[str, Any] = {}
        try:
            for path, value in changes.items():
                group, _, part = path.rpartition(".")
                if group:
                    before = values.get(group, getattr(self._settings.values, group))
                    values[group] = replace(before, **{part: value})
                else:
                    values[path] = value
            self._session.change_settings(**values)
        except InvalidValueError as error:
            return _reason(error)
        return ""


class SamplingTarget:
    """How one open conversation is sampled; a reset goes back to the settings."""

    def __init__(self, session: Session, settings: Settings, conversation_id: str) -> None:
        self._session = session
        self._settings = settings
        self._conversation_id = conversation_id

    def value(self, path: str) -> Any:
        return getattr(self.params, path.rpartition(".")[2])

    def default(self, path: str) -> Any:
        return getattr(self._settings.values.sampling, path.rpartition(".")[2])

    @property
    def params(self) -> SamplingParams:
        """The parameters now."""
        return self._session.sampling(self._conversation_id)

    def set(self, changes: Mapping[str, Any]) -> str:
        parts = {path.rpartition(".")[2]: value for path, value in changes.items()}
        try:
            params = replace(self.params, **parts)
        except InvalidValueError as error:
            return _reason(error)
        is_default = params == self._settings.values.sampling
        self._session.set_sampling(self._conversation_id, None if is_default else params)
        return ""


def _of(values: Values, path: str) -> Any:
    found: Any = values
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _reason(error: InvalidValueError) -> str:
    # The rows check the ranges; what is left is seldom, and has the engine's own words.
    return tr("This value cannot be used: {reason}", reason=error)
