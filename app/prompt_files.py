"""System prompts as files: JSON for a library, plain text for one. Qt-free."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from app.app_error import AppError
from app.conversation import storable
from app.store_prompts import SystemPrompt
from app.titles import clean_title
from engine.api.files import discard, replace_file

FORMAT = "quire-prompts"
FORMAT_VERSION = 1
MAX_BYTES = 1 << 22


class PromptFileError(AppError):
    code = "prompt_file"
    action = "Nothing was changed. Choose a text file, or prompts that Quire exported."


def read_prompts(path: Path) -> list[tuple[str, str]]:
    """(name, text) of each prompt. A file that is not JSON is one prompt, named like the file.

    Raises:
        PromptFileError: it cannot be read, or is JSON of another kind.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise PromptFileError(f"{path.name} is larger than 4 MB.", path=str(path))
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise PromptFileError(f"{path.name} cannot be read: {reason}.", path=str(path)) from error
    except UnicodeDecodeError as error:
        raise PromptFileError(f"{path.name} is not a text file.", path=str(path)) from error
    if path.suffix.lower() != ".json":
        return [(clean_title(path.stem), storable(text.strip()))]
    try:
        return _ours(json.loads(text))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        message = f"{path.name} holds no system prompts: {reason}"
        raise PromptFileError(message, path=str(path), reason=reason) from error


def write_prompts(prompts: Iterable[SystemPrompt], path: Path) -> None:
    """Writes all as JSON, or the only one as plain text if the name does not end in ``.json``.

    Raises:
        OSError: it cannot be written; what was there stays.
    """
    chosen = list(prompts)
    if path.suffix.lower() == ".json" or len(chosen) != 1:
        entries = [{"name": prompt.name, "text": prompt.text} for prompt in chosen]
        document = {"format": FORMAT, "version": FORMAT_VERSION, "prompts": entries}
        text = json.dumps(document, ensure_ascii=False, indent=1)
    else:
        text = chosen[0].text
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_text(text + "\n", encoding="utf-8", newline="\n")
        replace_file(partial, path)
    finally:
        discard(partial)


def _ours(document: object) -> list[tuple[str, str]]:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError("it is of another kind")
    if document.get("version") != FORMAT_VERSION:
        raise ValueError(f"it is of version {document.get('version')}")
    found = []
    for entry in document["prompts"]:
        name, text = entry["name"], entry["text"]
        if not isinstance(name, str) or not isinstance(text, str):
            raise TypeError("a name or text is not a text")
        found.append((clean_title(storable(name)), storable(text)))
    return found
