"""Every error that the engine reports.

EngineError
├── InvalidValueError            a setting, parameter or message out of range
├── NotSupportedYetError         a command of the interface that this engine does not do yet
├── UnknownIdError               a request or conversation that does not exist
├── DuplicateIdError             a request id used twice
├── NoModelError                 a request before a model is loaded
├── EmptyMessageError            nothing to answer
├── PromptTooLongError           prompt longer than the model's context
│   └── MessageTooLongError      even without all that may be dropped
├── PromptExceedsPoolError       prompt that can never fit into the pool
├── OutOfMemoryError             memory could not be had
├── InterruptedQueryError        a question whose subject changed while it was being answered
├── NotAllowedError              a command that this client may not give
├── DeviceError                  a device that is not there, or cannot be used
│   └── DeviceLostError          a device that died under the engine: only a new process helps
├── ModelError                   a model that cannot be used
│   ├── ModelNotFoundError       no file
│   ├── StarterModelMissingError the starter model has not been fetched
│   ├── ModelFileError           truncated, corrupt or foreign file
│   │   └── ModelPartsMissingError   a file in several parts, some of which are not there
│   ├── UnsupportedModelError    an architecture or tokenizer that we do not know
│   │   └── PickledWeightsError      weights that could run code when they are read
│   └── ModelFetchError          the starter model could not be fetched
├── ChatTemplateError            the model's chat template failed
├── TraceError                   a recording that cannot be read
├── BrokenInstallationError      a library of the engine that cannot be loaded
└── InternalError                a fault of our own, reported with its place
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """An error as it crosses to the application.

    ``code`` is stable and names the class; ``message`` says the cause with its numbers; ``action``
    what to do; ``numbers`` the same facts by name, for a translated text.
    """

    code: str
    message: str
    action: str = ""
    numbers: tuple[tuple[str, int | float | str], ...] = ()


class EngineError(Exception):
    """Base of all errors that the engine reports; ``numbers`` are keyword arguments."""

    code = "engine_error"
    action = ""

    def __init__(self, message: str, *, action: str | None = None, **numbers: int | float | str):
        super().__init__(message)
        self.message = message
        self.numbers = numbers
        if action is not None:
            self.action = action

    def info(self) -> ErrorInfo:
        """The same error as a value that can cross to the application."""
        return ErrorInfo(self.code, self.message, self.action, tuple(self.numbers.items()))


class InvalidValueError(EngineError, ValueError):
    code = "invalid_value"
    action = "Change the value that the message names."


class NotSupportedYetError(EngineError):
    code = "not_supported_yet"


class UnknownIdError(EngineError):
    code = "unknown_id"


class DuplicateIdError(EngineError):
    code = "duplicate_id"


class InterruptedQueryError(EngineError):
    code = "interrupted"
    action = "Ask again."


class NotAllowedError(EngineError):
    code = "not_allowed"


class NoModelError(EngineError):
    code = "no_model"
    action = "Load a model first."


class EmptyMessageError(EngineError):
    code = "empty_message"
    action = "Type a message first."


class PromptTooLongError(EngineError):
    code = "prompt_too_long"
    action = (
        "Shorten the message, let this conversation drop its oldest messages, "
        "or start a new conversation."
    )


class MessageTooLongError(PromptTooLongError):
    code = "message_too_long"
    action = "Shorten the message or the system prompt."


class PromptExceedsPoolError(EngineError):
    code = "prompt_exceeds_pool"
    action = "Shorten the message, or give the cache more memory in the settings."


class OutOfMemoryError(EngineError, MemoryError):
    code = "out_of_memory"
    action = "Close other programs or choose a smaller model."


class DeviceError(EngineError):
    code = "device"
    action = "Choose another device, or restart the program."


class DeviceLostError(DeviceError):
    code = "device_lost"
    action = "Your conversations are saved. Restart Quire to go on."


class ModelError(EngineError):
    code = "model"


class ModelNotFoundError(ModelError):
    code = "model_not_found"
    action = "Check the path, or choose another model."


class StarterModelMissingError(ModelError):
    code = "starter_model_missing"
    action = "Fetch the starter model (94 MB), or choose a model file."


class ModelFileError(ModelError):
    code = "model_file"
    action = "The file is damaged or of another kind: fetch it again or choose another."


class ModelPartsMissingError(ModelFileError):
    code = "model_parts_missing"
    action = "Fetch the missing parts, and put them beside the others."


class UnsupportedModelError(ModelError):
    code = "unsupported_model"
    action = "Choose a model of a supported architecture."


class PickledWeightsError(UnsupportedModelError):
    code = "pickled_weights"
    action = (
        "Choose a copy of this model with its weights in the safetensors format: reading the "
        "others would run code that they contain."
    )


class ModelFetchError(ModelError):
    code = "model_fetch"
    action = "Check the network and the free disk space, then try again."


class LoadCancelledError(ModelError):
    code = "load_cancelled"
    action = "Load a model to go on."


class ChatTemplateError(EngineError):
    code = "chat_template"
    action = "Choose another chat template for this model."


class TraceError(EngineError):
    code = "trace"
    action = "Choose another recording."


class BrokenInstallationError(EngineError):
    code = "broken_installation"
    action = "A part of the program is gone: unpack or install it again."


class InternalError(EngineError):
    code = "internal"
    action = "Please report this with the log."


_WINDOWS_LOAD_ERRORS = (126, 127, 193)
"""Not found, without a function that is asked for, no library at all."""


_NO_MEMORY = (
    "out of memory",
    "cannot allocate memory",
    "can't allocate memory",
    "not enough memory",
    "cublas_status_alloc_failed",
)
"""What torch and the system say; torch's exceptions are no ``MemoryError``."""

_UNUSABLE_CARD = ("no kernel image is available", "busy or unavailable")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory could not be had, on a GPU or off it."""
    # By its name: torch is not imported for it.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return any(words in text for words in _NO_MEMORY)


def out_of_memory(error: BaseException, meanwhile: str = "") -> OutOfMemoryError:
    """Tells such an error with its numbers; what torch advises is for those who program with it.

    ``meanwhile``: what was being done, with a space before it.
    """
    words = _first_line(error).partition(" If reserved but unallocated memory is large")[0]
    return OutOfMemoryError(f"Memory ran out{meanwhile}: {words}")


def unexpected(error: BaseException) -> EngineError:
    """Wraps an exception that nobody foresaw, with its kind and place.

    What is no fault of the code gets an error of its own: memory that could not be had, a GPU that
    torch or Triton cannot use, a file on which a library in Rust gives up (which it tells with
    something that is no ``Exception``), a library that cannot be loaded.
    """
    if is_out_of_memory(error):
        return out_of_memory(error)
    if type(error).__name__ == "PanicException":
        return ModelFileError(f"A part of the model cannot be read: {_first_line(error)}.")
    frames = traceback.extract_tb(error.__traceback__)
    # All that Triton compiles and launches goes through there.
    if any(Path(frame.filename).parts[-3:-1] == ("triton", "runtime") for frame in frames):
        # Of a kernel that does not compile the text is an excerpt of its source.
        why = getattr(error, "error_message", None) or _first_line(error)
        return DeviceError(
            f"Triton cannot run a kernel on this GPU ({type(error).__name__}: {why}).",
            action="Choose another attention backend in the settings, or the CPU.",
        )
    if any(words in str(error) for words in _UNUSABLE_CARD):
        return DeviceError(f"The GPU cannot be used: {_first_line(error)}")
    if isinstance(error, ImportError) or getattr(error, "winerror", None) in _WINDOWS_LOAD_ERRORS:
        why = str(error).rstrip(".")
        return BrokenInstallationError(
            f"A library of the engine cannot be loaded: {why}.", reason=why
        )
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return InternalError(f"{type(error).__name__}: {error}{place}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
