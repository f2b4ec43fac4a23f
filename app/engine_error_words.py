"""Words for errors of the engine, by their codes: the cause with its numbers, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.i18n import tr

Numbers = Mapping[str, int | float | str]
Words = tuple[str, str]
Described = Mapping[str, Callable[[Numbers], Words]]


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


def _model_parts_missing(n: Numbers) -> Words:
    told = {"parts": n["parts"], "count": n["count"], "name": n["name"]}
    if n["missing"] == "1":
        cause = tr("Part {parts} of {count} is missing: {name}.", **told)
    else:
        cause = tr("Parts {parts} of {count} are missing, {name} first.", **told)
    return cause, tr("Fetch the missing parts, and put them beside the others.")


def _unsupported_model(_n: Numbers) -> Words:
    return (
        tr("This kind of model is not supported."),
        tr("Choose a model of a supported architecture."),
    )


def _pickled_weights(n: Numbers) -> Words:
    return (
        tr("The weights are pickled ({name}). Such files are never opened.", name=n["name"]),
        tr(
            "Choose a copy of this model with its weights in the safetensors format: reading the "
            "others would run code that they contain."
        ),
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


def _broken_installation(n: Numbers) -> Words:
    return (
        tr("A library of the engine cannot be loaded: {reason}.", reason=n["reason"]),
        tr("A part of the program is gone: unpack or install it again."),
    )


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


def _invalid_value(_n: Numbers) -> Words:
    return (
        tr("A value is out of its range."),
        tr("Change the value that the message names."),
    )


def _load_cancelled(_n: Numbers) -> Words:
    return tr("Loading the model was cancelled."), tr("Load a model to go on.")


def _interrupted(_n: Numbers) -> Words:
    return tr("The question was interrupted."), tr("Ask again.")


ENGINE_ERRORS: Described = {
    "prompt_too_long": _prompt_too_long,
    "message_too_long": _message_too_long,
    "prompt_exceeds_pool": _prompt_exceeds_pool,
    "empty_message": _empty_message,
    "no_model": _no_model,
    "starter_model_missing": _starter_model_missing,
    "model_not_found": _model_not_found,
    "model_file": _model_file,
    "model_parts_missing": _model_parts_missing,
    "unsupported_model": _unsupported_model,
    "pickled_weights": _pickled_weights,
    "model_fetch": _model_fetch,
    "out_of_memory": _out_of_memory,
    "device": _device,
    "chat_template": _chat_template,
    "trace": _trace,
    "internal": _internal,
    "broken_installation": _broken_installation,
    "engine_died": _engine_died,
    "device_lost": _device_lost,
    "invalid_value": _invalid_value,
    "load_cancelled": _load_cancelled,
    "interrupted": _interrupted,
}
