"""Words for errors: the cause with its numbers, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

from app.app_error_words import APP_ERRORS
from app.engine_error_words import ENGINE_ERRORS, Described, Words
from engine.api.errors import ErrorInfo


def describe_error(error: ErrorInfo) -> Words:
    """(cause, action) in the user's language, as plain text.

    Where the cause is one of many, it is the engine's own sentence; in another language than
    English it follows a general one in brackets.
    """
    describe = _DESCRIBED.get(error.code)
    if describe is None:
        return error.message, error.action
    numbers = {name: _grouped(value) for name, value in error.numbers}
    try:
        cause, action = describe(numbers)
    except KeyError:
        # An engine of another version may leave a number out.
        return error.message, error.action
    general = _GENERAL.get(error.code)
    if general is None:
        return cause, action
    # These have many causes, and often a better action than the class of the error has.
    if cause == general and error.code not in _FOR_PROGRAMMERS:
        return error.message or cause, error.action or action
    if error.code in _FOR_PROGRAMMERS:
        action = error.action or action
    return (f"{cause} ({error.message})" if error.message else cause), action


def _grouped(value: int | float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


_DESCRIBED: Described = {**ENGINE_ERRORS, **APP_ERRORS}

_FOR_PROGRAMMERS = ("internal",)
"""Their message is no sentence, but the name of a fault."""

# Codes that stand for many causes, with their general sentence in English.
_GENERAL: Mapping[str, str] = {
    "invalid_value": "A value is out of its range.",
    "load_cancelled": "Loading the model was cancelled.",
    "interrupted": "The question was interrupted.",
    "model_not_found": "The model was not found.",
    "model_file": "The model file cannot be used.",
    "unsupported_model": "This kind of model is not supported.",
    "model_fetch": "The starter model could not be fetched.",
    "out_of_memory": "There is not enough memory.",
    "device": "The device cannot be used.",
    "chat_template": "The model's chat template failed.",
    "trace": "The recording cannot be read.",
    "import_file": "The conversations could not be imported.",
    "export_file": "The conversation could not be exported.",
    "prompt_file": "The system prompts could not be read or written.",
    "internal": "Something went wrong inside Quire.",
    "engine_died": "The engine stopped because of a fault.",
    "device_lost": "The device failed and cannot be used again.",
    "data_directory": "The data directory cannot be used.",
    "store_damaged": "The conversation database was damaged.",
    "store_damage_found": "A check found the conversation database damaged.",
    "store_write": "A conversation could not be saved.",
    "settings_unreadable": "The settings file could not be read.",
    "settings_write": "The settings could not be saved.",
    "invalid_setting": "A setting was not used.",
}
