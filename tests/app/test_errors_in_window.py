"""Each error of the engine is told with cause, numbers and action, and the window goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QLabel

from app.error_text import describe_error
from app.i18n import Language
from app.session_state import ModelStatus
from engine.api import errors
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore(r"propagateSizeHints|raise\(\)")

LOAD_ERRORS = [
    errors.ModelNotFoundError("/models/張/a.gguf was not found."),
    errors.ModelFileError("a.gguf is truncated: it needs 94,123 bytes, has 12."),
    errors.UnsupportedModelError("Architecture mamba is not supported; 7 others are."),
    errors.OutOfMemoryError("The weights need 14.2 GB, but 3.1 GB are free."),
    errors.DeviceError("No NVIDIA driver was found; version 535 or newer is needed."),
    errors.ModelFetchError("The server answered 503 after 3 tries."),
    errors.ChatTemplateError("Line 12: unknown filter."),
    errors.InternalError("KeyError: 'x' (loader.py:99)"),
]
ANSWER_ERRORS = [
    errors.PromptTooLongError("…", prompt_tokens=9000, context_length=2048),
    errors.MessageTooLongError("…", prompt_tokens=9000, context_length=2048),
    errors.PromptExceedsPoolError("…", prompt_tokens=9000, pool_tokens=8192),
    errors.OutOfMemoryError("The step needs 310 MB, but 12 MB are free."),
    errors.InvalidValueError("temperature = -1: 0 to 100", name="temperature", value="-1"),
    errors.InternalError("IndexError: 4 (sampler.py:12)"),
]


@pytest.fixture
def language(request: pytest.FixtureRequest, qapp) -> Iterator[str]:
    chosen = Language(request.param)
    chosen.install()
    yield request.param
    chosen.remove()


def said(stage: Stage) -> str:
    """Everything that can be read in the window."""
    labels = stage.window.findChildren(QLabel)
    return "\n".join(label.text() for label in labels if label.isVisible())


def digits(text: str) -> set[str]:
    return {part for part in text.replace(",", "").split() if part.isdigit()}


@pytest.mark.parametrize("language", ["en", "zh_CN"], indirect=True)
def test_a_model_that_cannot_be_loaded(language: str, qtbot) -> None:
    with window_stage(qtbot, load=False) as stage:
        qtbot.waitUntil(lambda: bool(stage.engines))
        for error in LOAD_ERRORS:
            stage.engine.load_error = error
            stage.session.load_model()
            cause, action = describe_error(error.info())
            qtbot.waitUntil(lambda cause=cause: cause in said(stage))
            assert action
            assert action in said(stage)
            assert digits(error.message) <= digits(cause)
            # What went wrong inside is called so in every language.
            assert (cause != error.message) == (language != "en" or error.code == "internal")
            stage.engine.load_error = None
            stage.page.model_card.retry_button.click()
            qtbot.waitUntil(lambda: stage.session.model_state.status is ModelStatus.READY)
        assert stage.page.submit("The window goes on.")


@pytest.mark.parametrize("language", ["en", "zh_CN"], indirect=True)
def test_an_answer_that_is_refused(language: str, qtbot) -> None:
    with window_stage(qtbot) as stage:
        conversation_id = stage.page.conversation_id
        for error in ANSWER_ERRORS:
            stage.engine.refusal = lambda _submit, error=error: error
            stage.page.composer.edit.setPlainText("My words.")
            stage.page.composer.submit()
            cause, action = describe_error(error.info())
            qtbot.waitUntil(lambda cause=cause: cause in said(stage))
            assert action
            assert action in said(stage)
            for number in (v for v in error.numbers.values() if isinstance(v, int)):
                assert f"{number:,}" in cause
            assert stage.page.composer.typed_text() == "My words."
        stage.engine.refusal = lambda _submit: None
        stage.page.composer.submit()
        qtbot.waitUntil(lambda: len(stage.session.conversation(conversation_id).path()) == 2)
