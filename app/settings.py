"""Validated settings of a profile, kept as JSON. Qt-free."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from engine.api.errors import ErrorInfo, InvalidValueError
from engine.api.params import EngineConfig, SamplingParams

THEMES = ("system", "light", "dark")
LANGUAGES = ("system", "en", "zh_CN")
DEFAULT_SYSTEM_PROMPT = (
    "You are a helpful assistant that runs on the user's own computer. Answer in the language of "
    "the question, in plain words, and no longer than the question needs. Say so when you are not "
    "sure or do not know. Use Markdown for lists, tables and code, and name the language of code."
)
"""Long enough to fill some blocks: what tabs share is then seen from the first start on."""


@dataclass(frozen=True, slots=True)
class Values:
    """All settings at one moment.

    ``model_path`` empty means the starter model. ``engine``: values for ``EngineConfig`` that
    differ from its defaults; names of other engines are accepted there.

    Raises:
        InvalidValueError: a value is out of its range; the error names it.
    """

    theme: str = "system"
    language: str = "system"
    default_system_prompt: str = DEFAULT_SYSTEM_PROMPT
    model_path: str = ""
    cache_panel_visible: bool = True
    sampling: SamplingParams = SamplingParams()
    engine: EngineConfig = EngineConfig()

    def __post_init__(self) -> None:
        _require(self.theme in THEMES, "theme", self.theme, f"one of {', '.join(THEMES)}")
        _require(
            self.language in LANGUAGES, "language", self.language, f"one of {', '.join(LANGUAGES)}"
        )
        for name in ("default_system_prompt", "model_path"):
            value = getattr(self, name)
            _require(isinstance(value, str), name, value, "a text")
        _require(
            isinstance(self.cache_panel_visible, bool),
            "cache_panel_visible",
            self.cache_panel_visible,
            "true or false",
        )


def _require(ok: bool, name: str, value: object, rule: str) -> None:
    if not ok:
        raise InvalidValueError(f"{name} = {value!r}: {rule}", name=name, value=str(value))


class Settings:
    """The settings file of a profile.

    A value that is unknown or out of range is not used and not thrown away: it stays in the file,
    and ``problems`` says what is wrong with it.
    """

    def __init__(self, path: Path | None) -> None:
        """Reads ``path``; None keeps the settings in memory only."""
        self._path = path
        self._values = Values()
        self._unused: dict[str, Any] = {}
        self.problems: list[ErrorInfo] = []
        self._read()

    @property
    def values(self) -> Values:
        return self._values

    def change(self, **changes: Any) -> None:
        """Sets values by name and writes the file.

        Raises:
            InvalidValueError: an unknown name or a value out of range; nothing is changed then.
            OSError: the file could not be written; the values hold for this run.
        """
        for name in changes:
            _require(name in _NAMES, name, changes[name], "there is no such setting")
        self._values = replace(self._values, **changes)
        for name in changes:
            self._unused.pop(name, None)
        self._write()

    def _read(self) -> None:
        if self._path is None or not self._path.exists():
            return
        try:
            stored = json.loads(self._path.read_text(encoding="utf-8"))
            if not isinstance(stored, dict):
                raise ValueError("not a JSON object")
        except (OSError, ValueError) as error:
            self._keep_damaged_file()
            self.problems.append(
                ErrorInfo(
                    "settings_unreadable",
                    f"The settings file could not be read: {error}",
                    "The defaults are used; the old file was kept beside it.",
                    (("path", str(self._path)),),
                )
            )
            return
        for name, value in stored.items():
            self._read_value(name, value)

    def _read_value(self, name: str, value: Any) -> None:
        try:
            _require(name in _NAMES, name, value, "there is no such setting")
            parsed = _PARSERS.get(name, _as_is)(value)
            self._values = replace(self._values, **{name: parsed})
        except (InvalidValueError, TypeError) as error:
            self._unused[name] = value
            self.problems.append(
                ErrorInfo(
                    "invalid_setting",
                    f"A setting was not used: {error}",
                    "Correct it in the settings file, or change it in the window.",
                    (("name", name), ("value", str(value)), ("reason", str(error))),
                )
            )

    def _keep_damaged_file(self) -> None:
        assert self._path is not None
        try:
            os.replace(self._path, self._path.with_suffix(".damaged.json"))
        except OSError:
            # Then it stays where it is, and the next write replaces it.
            return

    def _write(self) -> None:
        if self._path is None:
            return
        defaults = Values()
        stored: dict[str, Any] = dict(self._unused)
        for name in sorted(_NAMES):
            value = getattr(self._values, name)
            if value != getattr(defaults, name):
                stored[name] = _to_json(value)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text(
            json.dumps(stored, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        os.replace(temporary, self._path)


def _to_json(value: Any) -> Any:
    if isinstance(value, SamplingParams | EngineConfig):
        defaults = asdict(type(value)())
        return {name: part for name, part in asdict(value).items() if part != defaults[name]}
    return value


def _as_is(value: Any) -> Any:
    return value


def _sampling(value: Any) -> SamplingParams:
    _require(isinstance(value, dict), "sampling", value, "an object")
    known = {f.name for f in fields(SamplingParams)}
    for name in value:
        _require(name in known, f"sampling.{name}", value[name], "there is no such setting")
    parts: dict[str, Any] = dict(value)
    if "stop" in parts:
        parts["stop"] = tuple(parts["stop"])
    return SamplingParams(**parts)


def _engine(value: Any) -> EngineConfig:
    _require(isinstance(value, dict), "engine", value, "an object")
    return EngineConfig.from_mapping(value)


_NAMES = frozenset(f.name for f in fields(Values))
_PARSERS: dict[str, Callable[[Any], Any]] = {"sampling": _sampling, "engine": _engine}
