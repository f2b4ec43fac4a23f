"""Words for errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication

from app import app_error, error_text
from app.error_text import describe_error
from app.i18n import Language, catalogue
from engine.api import errors
from engine.api.errors import (
    EmptyMessageError,
    EngineError,
    ErrorInfo,
    ModelFileError,
    ModelPartsMissingError,
    PickledWeightsError,
    PromptExceedsPoolError,
    PromptTooLongError,
)
from engine.loading.weight_files import read_weight_files

TRUNCATED = ModelFileError("a.gguf is truncated: it needs 94 bytes, has 12.", actual_bytes=12)


@pytest.fixture
def chinese(qapp: QApplication) -> Iterator[None]:
    language = Language("zh_CN")
    language.install()
    yield
    language.remove()


def test_numbers_are_in_the_text_with_grouped_digits() -> None:
    error = PromptTooLongError("…", prompt_tokens=9000, context_length=2048)
    assert describe_error(error.info()) == (
        "The conversation has 9,000 tokens, but the model can read 2,048.",
        "Shorten the message, let this conversation drop its oldest messages, "
        "or start a new conversation.",
    )


def test_a_missing_number_leaves_the_engine_s_own_words() -> None:
    error = PromptExceedsPoolError("Own words.")
    assert describe_error(error.info()) == ("Own words.", error.action)


def test_an_unknown_code_leaves_the_engine_s_own_words() -> None:
    assert describe_error(ErrorInfo("new_code", "Cause.", "Action.")) == ("Cause.", "Action.")


def test_english_gives_the_precise_cause() -> None:
    assert describe_error(TRUNCATED.info()) == (TRUNCATED.message, TRUNCATED.action)


def test_a_fault_of_the_program_is_called_one_and_named() -> None:
    error = ErrorInfo("internal", "ValueError: 3", "Everything is saved.")
    cause, action = describe_error(error)
    assert cause == "Something went wrong inside Quire. (ValueError: 3)"
    assert action == "Everything is saved."


def test_a_special_action_is_kept() -> None:
    error = ModelFileError("Cause.", action="Do this.")
    assert describe_error(error.info()) == ("Cause.", "Do this.")


def test_other_languages_name_the_kind_and_keep_the_precise_cause(chinese: None) -> None:
    cause, action = describe_error(TRUNCATED.info())
    assert cause == f"模型文件无法使用。 ({TRUNCATED.message})"
    assert action.startswith("文件已损坏")


def test_translated_text_has_its_numbers(chinese: None) -> None:
    error = PromptTooLongError("…", prompt_tokens=9000, context_length=2048)
    assert describe_error(error.info())[0] == "对话有 9,000 个词元，但模型最多能读 2,048 个。"


def test_an_empty_message_is_described(chinese: None) -> None:
    assert describe_error(EmptyMessageError("…").info())[0] == "消息是空的。"


def test_every_general_sentence_is_the_one_in_the_code() -> None:
    for code, general in error_text._GENERAL.items():
        cause, _action = error_text._DESCRIBED[code]({})
        assert cause == general


def test_every_error_has_words_or_says_enough_itself() -> None:
    classes = [
        found
        for module in (errors, app_error)
        for _name, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, EngineError | app_error.AppError)
    ]
    own_words = {"engine_error", "app_error", "model", "not_supported_yet"}
    own_words |= {"unknown_id", "duplicate_id", "not_allowed"}
    codes = {found.code for found in classes}
    assert codes - set(error_text._DESCRIBED) == own_words


def test_every_text_of_this_file_is_translated() -> None:
    known = {re.sub(r"\{\w+\}", "{}", key) for key in catalogue("zh_CN")}
    for describe in error_text._DESCRIBED.values():
        numbers = dict.fromkeys(
            (
                *("prompt_tokens", "context_length", "pool_tokens", "path", "found", "known"),
                *("name", "size_kb", "limit_kb", "limit", "reason", "parts", "count"),
                "missing",
            ),
            "{}",
        )
        for text in describe(numbers):
            assert not text or text in known, text


@pytest.mark.parametrize(
    ("missing", "parts", "cause"),
    [
        (1, "2", "Part 2 of 3 is missing: a-00002-of-00003.gguf."),
        (2, "1, 2", "Parts 1, 2 of 3 are missing, a-00002-of-00003.gguf first."),
    ],
)
def test_missing_parts_are_counted(missing: int, parts: str, cause: str) -> None:
    numbers = {"parts": parts, "missing": missing, "count": 3, "name": "a-00002-of-00003.gguf"}
    error = ModelPartsMissingError("Own words.", **numbers)  # type: ignore[arg-type]
    assert describe_error(error.info()) == (cause, error.action)


def test_pickled_weights_are_refused_in_words_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(PickledWeightsError) as caught:
        read_weight_files(tmp_path)
    cause, action = describe_error(caught.value.info())
    assert cause == "The weights are pickled (pytorch_model.bin). Such files are never opened."
    assert action == caught.value.action
