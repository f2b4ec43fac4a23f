"""Validated settings of a profile, kept as JSON. Qt-free."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

from engine.api.errors import ErrorInfo, InvalidValueError
from engine.api.files import replace_file
from engine.api.params import CONFIG_ALIASES, EngineConfig, OverflowPolicy, SamplingParams

THEMES = ("system", "light", "dark")
LANGUAGES = ("system", "en", "zh_CN")
DENSITIES = ("comfortable", "compact")
MIN_FONT_SIZE, MAX_FONT_SIZE = 7.0, 24.0
MAX_IDLE_MINUTES = 7 * 24 * 60
HUB_ADDRESS = r"https?://[^\s/?#@]+(/[^\s?#]*)?"
"""Of a hub; no name and password in it, which would be shown and written to the settings file."""

DEFAULT_SYSTEM_PROMPT = (
    "You are a helpful assistant that runs on the user's own computer. Answer in the language of "
    "the question, in plain words, and no longer than the question needs. Say so when you are not "
    "sure or do not know. Use Markdown for lists, tables and code, and name the language of code."
)
"""Long enough to fill some blocks: what tabs share is then seen from the first start on."""

Shortcuts = Mapping[str, tuple[str, ...]]
"""Keys by action id, as Qt's portable text; only of actions that the user gave others."""


@dataclass(frozen=True, slots=True)
class Values:
    """All settings at one moment.

    ``model_path`` empty means the starter model. ``font_family`` and ``code_font_family`` empty
    mean the system's; ``font_size`` in points. ``overflow``: what new conversations do when the
    context is full. ``idle_unload_minutes``: after how long without a question the model's memory
    is freed; 0 is never. ``hub_endpoint``: where models are fetched from; empty means the variable
    HF_ENDPOINT, or huggingface.co. ``engine``: values for ``EngineConfig`` that differ from its
    defaults; names of other engines are accepted there.

    Raises:
        InvalidValueError: a value is out of its range; the error names it.
    """

    theme: str = "system"
    language: str = "system"
    density: str = "comfortable"
    font_family: str = ""
    code_font_family: str = ""
    font_size: float = 10.0
    notify_when_done: bool = True
    default_system_prompt: str = DEFAULT_SYSTEM_PROMPT
    overflow: str = OverflowPolicy.STOP.value
    model_path: str = ""
    idle_unload_minutes: int = 0
    hub_endpoint: str = ""
    cache_panel_visible: bool = True
    sampling: SamplingParams = SamplingParams()
    engine: EngineConfig = EngineConfig()
    shortcuts: Shortcuts = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_types(self, "")
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            _require(value in choices, name, value, f"one of {', '.join(choices)}")
        _require(
            MIN_FONT_SIZE <= self.font_size <= MAX_FONT_SIZE,
            "font_size",
            self.font_size,
            f"{MIN_FONT_SIZE:g} to {MAX_FONT_SIZE:g}",
        )
        _require(
            0 <= self.idle_unload_minutes <= MAX_IDLE_MINUTES,
            "idle_unload_minutes",
            self.idle_unload_minutes,
            f"0 to {MAX_IDLE_MINUTES}",
        )
        _require(
            not self.hub_endpoint or _is_hub_address(self.hub_endpoint),
            "hub_endpoint",
            self.hub_endpoint,
            "an address such as https://huggingface.co",
        )
        require_types(self.sampling, "sampling.")
        require_types(self.engine, "engine.")


CHOICES: Mapping[str, tuple[str, ...]] = {
    "theme": THEMES,
    "language": LANGUAGES,
    "density": DENSITIES,
    "overflow": tuple(policy.value for policy in OverflowPolicy),
}


def _require(ok: bool, name: str, value: object, rule: str) -> None:
    if not ok:
        raise InvalidValueError(f"{name} = {value!r}: {rule}", name=name, value=str(value))


def _is_hub_address(text: str) -> bool:
    try:
        port = urlsplit(text).port
    except ValueError:
        # Half an IPv6 address, or a port that is none.
        return False
    return port != 0 and re.fullmatch(HUB_ADDRESS, text) is not None


def require_types(values: Values | SamplingParams | EngineConfig, prefix: str) -> None:
    """What a JSON file holds may be of any type; a number is never taken for true.

    Raises:
        InvalidValueError: a value is of another type than its field; ``prefix`` begins its name.
    """
    for name, hint in _HINTS[type(values).__name__].items():
        value = getattr(values, name)
        words = _TYPE_WORDS.get(hint)
        if words is not None:
            _require(_is_a(value, hint), f"{prefix}{name}", value, words)
        elif hint == Shortcuts:
            _require(
                isinstance(value, Mapping) and all(map(_is_strings, value.values())),
                name,
                value,
                "lists of keys by action",
            )


def _is_a(value: object, hint: Any) -> bool:
    if get_origin(hint) in (Union, type(int | None)):
        return any(_is_a(value, part) for part in get_args(hint))
    if hint == tuple[str, ...]:
        return _is_strings(value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _is_strings(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(part, str) for part in value)


_TYPE_WORDS: Mapping[Any, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    int | None: "a whole number, or null",
    float | None: "a number, or null",
    tuple[str, ...]: "a list of texts",
}


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

    @property
    def path(self) -> Path | None:
        """The file, which need not exist; None if the settings are kept in memory only."""
        return self._path

    @property
    def unused(self) -> dict[str, Any]:
        """What the file holds that is not used, by name; of a group only the parts in question."""
        return dict(self._unused)

    def change(self, **changes: Any) -> None:
        """Sets values by name and writes the file.

        Raises:
            InvalidValueError: an unknown name or a value out of range; nothing is changed then.
            OSError: the file could not be written; the values hold for this run.
        """
        for name in changes:
            _require(name in _NAMES, name, changes[name], "there is no such setting")
        before, self._values = self._values, replace(self._values, **changes)
        for name in changes:
            self._forget_unused(name, before)
        self._write()

    def _forget_unused(self, name: str, before: Values) -> None:
        """What was set by the user replaces what could not be used; other parts stay."""
        unused = self._unused.get(name)
        if name not in _GROUPS or not isinstance(unused, dict):
            self._unused.pop(name, None)
            return
        old, new = getattr(before, name), getattr(self._values, name)
        for part in list(unused):
            canonical = CONFIG_ALIASES.get(part, part)
            if getattr(old, canonical, None) != getattr(new, canonical, None):
                del unused[part]
        if not unused:
            del self._unused[name]

    def _read(self) -> None:
        if self._path is None or not self._path.exists():
            return
        try:
            # Some editors put a byte order mark before the text.
            stored = json.loads(self._path.read_text(encoding="utf-8-sig"))
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
            if name in _GROUPS and isinstance(value, dict):
                self._read_group(name, value)
            else:
                self._try(name, value, partial(_with, name, value))

    def _read_group(self, name: str, stored: dict[str, Any]) -> None:
        """Each part by itself, so that one bad part does not take the others with it."""
        seen: set[str] = set()
        for part, value in stored.items():
            canonical = CONFIG_ALIASES.get(part, part) if name == "engine" else part

            def parse(part: str = part, canonical: str = canonical, value: Any = value) -> _Changes:
                _require(canonical in _GROUPS[name], part, value, "there is no such setting")
                _require(canonical not in seen, part, value, f"{canonical} is given twice")
                group = getattr(self._values, name)
                return {name: replace(group, **{canonical: _as_tuple(value)})}

            if self._try(f"{name}.{part}", value, parse):
                seen.add(canonical)

    def _try(self, path: str, value: Any, parse: Callable[[], _Changes]) -> bool:
        try:
            self._values = replace(self._values, **parse())
        except (InvalidValueError, TypeError) as error:
            self._keep_unused(path, value, error)
            return False
        return True

    def _keep_unused(self, path: str, value: Any, error: Exception) -> None:
        name, _, part = path.partition(".")
        if part and name in _GROUPS:
            self._unused.setdefault(name, {})[part] = value
        else:
            self._unused[path] = value
        self.problems.append(
            ErrorInfo(
                "invalid_setting",
                f"A setting was not used: {error}",
                "Correct it in the settings file, or change it in the window.",
                (("name", path), ("value", str(value)), ("reason", str(error))),
            )
        )

    def _keep_damaged_file(self) -> None:
        assert self._path is not None
        try:
            replace_file(self._path, self._path.with_suffix(".damaged.json"))
        except OSError:
            # Then it stays where it is, and the next write replaces it.
            return

    def _write(self) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_suffix(".tmp")
        text = json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"
        # A path whose name is no UTF-8 has half surrogates; so written they are JSON's own escapes.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        replace_file(temporary, self._path)

    def to_json(self) -> dict[str, Any]:
        """What is written: what differs from the defaults, and what could not be used."""
        defaults = Values()
        stored: dict[str, Any] = dict(self._unused)
        for name in sorted(_NAMES):
            value = getattr(self._values, name)
            if value == getattr(defaults, name):
                continue
            kept = stored.get(name)
            stored[name] = _to_json(value)
            if name in _GROUPS and isinstance(kept, dict):
                stored[name] = {**kept, **stored[name]}
        return stored


_Changes = dict[str, Any]


def _with(name: str, value: Any) -> _Changes:
    _require(name in _NAMES, name, value, "there is no such setting")
    _require(name not in _GROUPS, name, value, "an object")
    if name == "shortcuts" and isinstance(value, dict):
        return {name: {action: _as_tuple(keys) for action, keys in value.items()}}
    return {name: value}


def _to_json(value: Any) -> Any:
    if isinstance(value, SamplingParams | EngineConfig):
        defaults = asdict(type(value)())
        return {name: part for name, part in asdict(value).items() if part != defaults[name]}
    return dict(value) if isinstance(value, Mapping) else value


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


_NAMES = frozenset(f.name for f in fields(Values))
_GROUPS: Mapping[str, frozenset[str]] = {
    "sampling": frozenset(f.name for f in fields(SamplingParams)),
    "engine": frozenset(f.name for f in fields(EngineConfig)),
}
_HINTS: Mapping[str, dict[str, Any]] = {
    kind.__name__: get_type_hints(kind) for kind in (Values, SamplingParams, EngineConfig)
}
