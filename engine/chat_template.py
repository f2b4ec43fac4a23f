"""Renders a model's chat template: code from a model file, so in a sandbox and within limits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from engine.api.errors import ChatTemplateError
from engine.models.hf_config import read_json

TIME_LIMIT_S = 2.0
"""A template renders in milliseconds; one that takes this long would never end."""

MAX_CHARS = 64_000_000
"""More text than any context holds."""

_MAX_SOURCE_CHARS = 1_000_000


class ChatTemplate:
    """A compiled template. ``source`` is its text; ``variables`` (bos_token …) are visible to it.

    Raises:
        ChatTemplateError: a syntax error.
    """

    def __init__(self, source: str, variables: Mapping[str, str] | None = None) -> None:
        self.source = source
        self.variables = dict(variables or {})
        self._environment = _Environment()
        if len(source) > _MAX_SOURCE_CHARS:
            raise ChatTemplateError(
                f"The chat template has {len(source):,} characters; "
                f"{_MAX_SOURCE_CHARS:,} are the limit.",
                length=len(source),
            )
        try:
            self._template = self._environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as error:
            line = getattr(error, "lineno", None)
            where = f" in line {line}" if line else ""
            raise ChatTemplateError(
                f"The chat template is damaged{where}: {str(error).splitlines()[0]}",
                action="Correct the model's chat_template.jinja, or choose another model.",
            ) from error

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTemplate | None:
        """The template of the model in ``folder``, or None if it has none.

        Raises:
            ChatTemplateError: a syntax error.
            ModelFileError: tokenizer_config.json is damaged.
        """
        config = read_json(folder / "tokenizer_config.json") or {}
        file = folder / "chat_template.jinja"
        source = file.read_text(encoding="utf-8") if file.is_file() else config.get("chat_template")
        if isinstance(source, list):
            # Several named templates; the others are for tools and retrieval.
            named = {entry.get("name"): entry.get("template") for entry in source}
            source = named.get("default")
        if not source:
            return None
        return cls(str(source), token_variables(config))

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool) -> str:
        """The text of ``messages``, each with ``role`` and ``content``.

        Raises:
            ChatTemplateError: the template refuses the messages, fails, or exceeds a limit.
        """
        deadline = time.monotonic() + TIME_LIMIT_S
        self._environment.deadline = deadline
        pieces: list[str] = []
        length = 0
        try:
            for piece in self._template.generate(
                messages=[dict(message) for message in messages],
                add_generation_prompt=add_generation_prompt,
                **self.variables,
            ):
                length += len(piece)
                if length > MAX_CHARS:
                    raise _LimitError(f"it wrote more than {MAX_CHARS:,} characters")
                self._environment.check_deadline()
                pieces.append(piece)
        except _Refusal as error:
            raise ChatTemplateError(
                f"The model's chat template refuses these messages: {error}",
                action="Change the messages or choose another chat template for this model.",
            ) from error
        except Exception as error:  # whatever a template's own code may do wrong
            raise ChatTemplateError(f"The model's chat template failed: {error}.") from error
        return "".join(pieces)


class _Refusal(jinja2.TemplateError):
    """The template called raise_exception."""


class _LimitError(jinja2.TemplateError):
    """The template took too long or wrote too much."""


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Hugging Face's environment (blocks trimmed, loop controls), with a deadline.

    Every call, attribute and costly operator passes through here, so that a loop that writes
    nothing is stopped too.
    """

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[jinja2.ext.loopcontrols, _GenerationTag],
        )
        self.deadline = 0.0
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def check_deadline(self) -> None:
        if time.monotonic() > self.deadline:
            raise _LimitError(f"it took longer than {TIME_LIMIT_S:.0f} s")

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.check_deadline()
        return super().call(context, obj, *args, **kwargs)

    def getattr(self, obj: Any, attribute: str) -> Any:
        self.check_deadline()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.check_deadline()
        return super().getitem(obj, argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.check_deadline()
        if operator == "%" and isinstance(left, str):
            raise _LimitError("it formats text with %, which is not allowed")
        if operator == "**" and (abs(left) > 1000 or abs(right) > 100):
            raise _LimitError(f"it asks for {left} to the power of {right}")
        if operator == "*" and _repeated_length(left, right) > MAX_CHARS:
            raise _LimitError(f"it repeats text to more than {MAX_CHARS:,} characters")
        return super().call_binop(context, operator, left, right)


class _GenerationTag(jinja2.ext.Extension):
    """{% generation %}…{% endgeneration %} marks answers for training; only its content counts."""

    tags = {"generation"}  # noqa: RUF012 - the base class's own type

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _repeated_length(left: Any, right: Any) -> int:
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, str | list | tuple) and isinstance(count, int):
            return len(sequence) * count
    return 0


def _raise_exception(message: str) -> None:
    raise _Refusal(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    # Jinja's own filter escapes HTML, which models never saw.
    allowed: dict[str, Callable[[Any], Any]] = {"ensure_ascii": bool, "sort_keys": bool}
    chosen = {name: allowed[name](option) for name, option in options.items() if name in allowed}
    return json.dumps(value, indent=indent, **{"ensure_ascii": False, **chosen})


def token_variables(config: Mapping[str, Any]) -> dict[str, str]:
    """The named tokens of tokenizer_config.json that templates use."""
    variables = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        token = config.get(name)
        if isinstance(token, dict):
            token = token.get("content")
        if isinstance(token, str):
            variables[name] = token
    return variables
