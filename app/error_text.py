"""Words for errors: the cause with its numbers, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.i18n import tr
from engine.api.errors import ErrorInfo

Numbers = Mapping[str, int | float | str]
Words = tuple[str, str]


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
    if cause == general:
        return error.message or cause, error.action or action
    return (f"{cause} ({error.message})" if error.message else cause), action


def _grouped(value: int | float | str) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _prompt_too_long(n: Numbers) -> Words:
    return (
        tr(
            "The conversation has {prompt} tokens, but the model can read {context}.",
            prompt=n["prompt_tokens"],
            context=n["context_length"],
        ),
        tr(
            "Shorten the message, let this conversation drop its oldest messages, "
            "or start a new conversation."
        ),
    )


def _message_too_long(n: Numbers) -> Words:
    return (
        tr(
            "The system prompt and the newest message alone have {prompt} tokens, "
            "but the model can read {context}.",
            prompt=n["prompt_tokens"],
            context=n["context_length"],
        ),
        tr("Shorten the message or the system prompt."),
    )


def _prompt_exceeds_pool(n: Numbers) -> Words:
    return (
        tr(
            "The conversation has {prompt} tokens, but the cache holds only {pool}.",
            prompt=n["prompt_tokens"],
            pool=n["pool_tokens"],
        ),
        tr("Shorten the message, or give the cache more memory in the settings."),
    )


def _empty_message(_n: Numbers) -> Words:
    return tr("The message is empty."), tr("Type a message first.")


def _answer_running(_n: Numbers) -> Words:
    return (
        tr("This conversation is still being answered."),
        tr("Wait for the answer, or stop it."),
    )


def _no_model(_n: Numbers) -> Words:
    return tr("No model is loaded."), tr("Load a model first.")


def _starter_model_missing(_n: Numbers) -> Words:
    return (
        tr("The starter model has not been fetched yet."),
        tr("Fetch the starter model (94 MB), or choose a model file."),
    )


def _model_not_found(_n: Numbers) -> Words:
    return tr("The model was not found."), tr("Check the path, or choose another model.")


def _model_file(_n: Numbers) -> Words:
    return (
        tr("The model file cannot be used."),
        tr("The file is damaged or of another kind: fetch it again or choose another."),
    )


def _unsupported_model(_n: Numbers) -> Words:
    return (
        tr("This kind of model is not supported."),
        tr("Choose a model of a supported architecture."),
    )


def _model_fetch(_n: Numbers) -> Words:
    return (
        tr("The starter model could not be fetched."),
        tr("Check the network and the free disk space, then try again."),
    )


def _out_of_memory(_n: Numbers) -> Words:
    return (
        tr("There is not enough memory."),
        tr("Close other programs or choose a smaller model."),
    )


def _device(_n: Numbers) -> Words:
    return (
        tr("The device cannot be used."),
        tr("Choose another device, or restart the program."),
    )


def _chat_template(_n: Numbers) -> Words:
    return (
        tr("The model's chat template failed."),
        tr("Choose another chat template for this model."),
    )


def _trace(_n: Numbers) -> Words:
    return tr("The recording cannot be read."), tr("Choose another recording.")


def _internal(_n: Numbers) -> Words:
    return tr("Something went wrong inside Quire."), tr("Please report this with the log.")


def _engine_died(_n: Numbers) -> Words:
    return (
        tr("The engine stopped because of a fault."),
        tr("Your conversations are saved. Restart the engine to go on."),
    )


def _device_lost(_n: Numbers) -> Words:
    return (
        tr("The device failed and cannot be used again."),
        tr("Your conversations are saved. Restart Quire to go on."),
    )


def _data_directory(_n: Numbers) -> Words:
    return (
        tr("The data directory cannot be used."),
        tr("Check its permissions and the free disk space, or start with another --data-dir."),
    )


def _data_directory_in_use(n: Numbers) -> Words:
    return (
        tr("Another Quire window has the data directory {path} open.", path=n["path"]),
        tr("Use the window that is open, or start with another --data-dir."),
    )


def _store_too_new(n: Numbers) -> Words:
    return (
        tr(
            "The conversations are of a newer Quire: schema {found}, this one knows {known}.",
            found=n["found"],
            known=n["known"],
        ),
        tr("Update Quire, or start with another --data-dir. Nothing was changed."),
    )


def _store_damaged(_n: Numbers) -> Words:
    return (
        tr("The conversation database was damaged."),
        tr("The damaged file was kept; a new one was begun."),
    )


def _store_write(_n: Numbers) -> Words:
    return (
        tr("A conversation could not be saved."),
        tr("Free some disk space. Saving is tried again; keep the window open until then."),
    )


def _store_recovered(_n: Numbers) -> Words:
    return tr("Saving works again."), ""


def _conversation_not_found(_n: Numbers) -> Words:
    return tr("This conversation is no longer stored."), ""


def _settings_unreadable(_n: Numbers) -> Words:
    return (
        tr("The settings file could not be read."),
        tr("The defaults are used; the old file was kept beside it."),
    )


def _settings_write(_n: Numbers) -> Words:
    return (
        tr("The settings could not be saved."),
        tr("Check the permissions of the data directory and the free disk space."),
    )


def _invalid_setting(_n: Numbers) -> Words:
    return (
        tr("A setting was not used."),
        tr("Correct it in the settings file, or change it in the window."),
    )


def _import_file(_n: Numbers) -> Words:
    return (
        tr("The conversations could not be imported."),
        tr(
            "Nothing was changed. Choose a file that Quire exported, or the conversations.json of "
            "a ChatGPT export."
        ),
    )


def _export_file(_n: Numbers) -> Words:
    return (
        tr("The conversation could not be exported."),
        tr("Check the folder's permissions and the free disk space, or choose another folder."),
    )


_DESCRIBED: Mapping[str, Callable[[Numbers], Words]] = {
    "prompt_too_long": _prompt_too_long,
    "message_too_long": _message_too_long,
    "prompt_exceeds_pool": _prompt_exceeds_pool,
    "empty_message": _empty_message,
    "answer_running": _answer_running,
    "no_model": _no_model,
    "starter_model_missing": _starter_model_missing,
    "model_not_found": _model_not_found,
    "model_file": _model_file,
    "unsupported_model": _unsupported_model,
    "model_fetch": _model_fetch,
    "out_of_memory": _out_of_memory,
    "device": _device,
    "chat_template": _chat_template,
    "trace": _trace,
    "internal": _internal,
    "engine_died": _engine_died,
    "device_lost": _device_lost,
    "data_directory": _data_directory,
    "data_directory_in_use": _data_directory_in_use,
    "store_too_new": _store_too_new,
    "store_damaged": _store_damaged,
    "store_write": _store_write,
    "store_recovered": _store_recovered,
    "conversation_not_found": _conversation_not_found,
    "import_file": _import_file,
    "export_file": _export_file,
    "settings_unreadable": _settings_unreadable,
    "settings_write": _settings_write,
    "invalid_setting": _invalid_setting,
}

# Codes that stand for many causes, with their general sentence in English.
_GENERAL: Mapping[str, str] = {
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
    "internal": "Something went wrong inside Quire.",
    "engine_died": "The engine stopped because of a fault.",
    "device_lost": "The device failed and cannot be used again.",
    "data_directory": "The data directory cannot be used.",
    "store_damaged": "The conversation database was damaged.",
    "store_write": "A conversation could not be saved.",
    "settings_unreadable": "The settings file could not be read.",
    "settings_write": "The settings could not be saved.",
    "invalid_setting": "A setting was not used.",
}
