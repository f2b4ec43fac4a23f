"""Renders a model's chat template: code from a model file, so in a sandbox and within limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser

from engine.api.errors import ChatTemplateError
from engine.loading.plain_text import plain_text
from engine.models.hf_config import read_json
from engine.template_files import MAX_SOURCE_CHARS, TOKENIZER_CONFIG, find_template, too_long
from engine.template_sandbox import MAX_CHARS, LimitError, TemplateSandbox


class ChatTemplate:
    """A compiled template. ``source`` is its text; ``variables`` (bos_token …) are visible to it.

    Raises:
        ChatTemplateError: a syntax error.
    """

    def __init__(self, source: str, variables: Mapping[str, str] | None = None) -> None:
        self.source = source
        self.variables = dict(variables or {})
        self._environment = _Environment()
        if len(source) > MAX_SOURCE_CHARS:
            raise too_long(len(source))
        try:
            self._template = self._environment.from_string(source)
        except (
            Exception
        ) as error:  # of the parser, or of Python's own on what it made of the source
            line = getattr(error, "lineno", None)
            where = f" in line {line}" if line else ""
            raise ChatTemplateError(
                f"The chat template is damaged{where}: {plain_text(str(error))}",
                action="Choose another chat template for this model, or correct its files.",
            ) from error

    @classmethod
    def from_folder(cls, folder: Path) -> ChatTemplate | None:
        """The template of the model in ``folder``, or None if it has none.

        Raises:
            ChatTemplateError: a syntax error, or no text.
            ModelFileError: tokenizer_config.json or chat_template.json is damaged.
        """
        config = read_json(folder / TOKENIZER_CONFIG) or {}
        source = find_template(folder, config)
        return cls(source, token_variables(config)) if source else None

    def render(self, messages: Sequence[Mapping[str, str]], *, add_generation_prompt: bool) -> str:
        """The text of ``messages``, each with ``role`` and ``content``.

        Raises:
            ChatTemplateError: the template refuses the messages, fails, or exceeds a limit.
        """
        self._environment.begin()
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
                    raise LimitError(f"it wrote more than {MAX_CHARS:,} characters")
                self._environment.check_deadline()
                pieces.append(piece)
        except _Refusal as error:
            reason = plain_text(str(error))
            raise ChatTemplateError(
                f"The model's chat template refuses these messages: {reason}",
                action="Change the messages or choose another chat template for this model.",
                reason=reason,
            ) from error
        except Exception as error:  # whatever a template's own code may do wrong
            reason = plain_text(str(error)) or type(error).__name__
            raise ChatTemplateError(
                f"The model's chat template failed: {reason.rstrip('.')}.", reason=reason
            ) from error
        finally:
            self._environment.end()
        return "".join(pieces)


class _Refusal(jinja2.TemplateError):
    """The template called raise_exception."""


class _Environment(TemplateSandbox):
    """Hugging Face's environment: blocks trimmed, loop controls, its functions and tags."""

    def __init__(self) -> None:
        super().__init__([jinja2.ext.loopcontrols, _GenerationTag])
        self.filters["tojson"] = _to_json
        self.guard_filters()
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now


class _GenerationTag(jinja2.ext.Extension):
    """{% generation %}…{% endgeneration %} marks answers for training; only its content counts."""

    tags = {"generation"}  # noqa: RUF012 - the base class's own type

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


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
