"""Which files of a model tell how it is talked to, and where they keep its chat template."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.api.errors import ChatTemplateError, ModelFileError, UnsupportedModelError
from engine.models.hf_config import MAX_JSON_BYTES, read_json

TOKENIZER_FILE = "tokenizer.json"
TEMPLATE_FILE = "chat_template.jinja"
TEMPLATE_JSON = "chat_template.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
MAX_SOURCE_CHARS = 1_000_000

_ENTRY = re.compile(rb'"chat_template"\s*:\s*(?!null|""|\[\s*\])')


def require_tokenizer(folder: Path) -> Path:
    """The tokenizer of the model in ``folder``.

    Raises:
        UnsupportedModelError: it has no tokenizer.json.
    """
    path = folder / TOKENIZER_FILE
    if not path.is_file():
        raise UnsupportedModelError(
            f"There is no {TOKENIZER_FILE} in {folder}.",
            action=f"Add the model's {TOKENIZER_FILE} to the folder, or choose another model.",
        )
    return path


def find_template(folder: Path, config: Mapping[str, Any]) -> str:
    """The source of the chat template in ``folder``; empty if there is none.

    In this order: ``chat_template.jinja``, the entry ``chat_template`` of ``config``, which is
    tokenizer_config.json, and ``chat_template.json``. Of several named ones the default is taken.

    Raises:
        ChatTemplateError: it is too long, or no text.
        ModelFileError: chat_template.json is damaged.
        OSError: a file cannot be read.
    """
    file = folder / TEMPLATE_FILE
    if file.is_file():
        if file.stat().st_size > 4 * MAX_SOURCE_CHARS:
            raise too_long(file.stat().st_size)
        try:
            return file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ModelFileError(
                f"{TEMPLATE_FILE} is damaged: byte {error.start:,} is no text in UTF-8."
            ) from error
    source = config.get("chat_template")
    if not source:
        source = (read_json(folder / TEMPLATE_JSON) or {}).get("chat_template")
    return _default_of(source)


def has_template(folder: Path) -> bool:
    """Whether ``folder`` has a chat template. Reads no JSON: added tokens can make it megabytes.

    Raises:
        OSError: a file cannot be read.
    """
    if (folder / TEMPLATE_FILE).is_file():
        return True
    files = (folder / TOKENIZER_CONFIG, folder / TEMPLATE_JSON)
    return any(contains(file, _ENTRY) for file in files)


def contains(file: Path, pattern: re.Pattern[bytes]) -> bool:
    """Whether ``pattern`` is in a file of JSON, which may be absent.

    Raises:
        OSError: it cannot be read.
    """
    if not file.is_file():
        return False
    with file.open("rb") as opened:
        return pattern.search(opened.read(MAX_JSON_BYTES)) is not None


def too_long(length: int) -> ChatTemplateError:
    """The error for a template that nobody wrote by hand."""
    return ChatTemplateError(
        f"The chat template has {length:,} characters; {MAX_SOURCE_CHARS:,} are the limit.",
        length=length,
    )


def _default_of(source: object) -> str:
    if isinstance(source, list):
        # Several named templates; the others are for tools and retrieval.
        entries = [entry for entry in source if isinstance(entry, dict)]
        source = {str(entry.get("name")): entry.get("template") for entry in entries}.get("default")
    if source is None:
        return ""
    if not isinstance(source, str):
        raise ChatTemplateError(
            f"The chat template is no text but {type(source).__name__}.",
            action="Choose another chat template for this model, or correct its files.",
        )
    return source
