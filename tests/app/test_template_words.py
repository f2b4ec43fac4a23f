"""The window says what the model's chat template costs, and where it has none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from app.i18n import Language
from app.widgets.template_words import template_words
from engine.api.events import ModelInfo, TemplateNote
from tests.helpers import fake_engine
from tests.helpers.window_stage import Stage, window_stage

pytestmark = pytest.mark.qt_log_ignore("propagateSizeHints")

REASONING = "the chat template drops the reasoning of earlier answers"
MODELS = {
    TemplateNote.REASONING: (1234, f"Each turn recomputes about 1,234 tokens: {REASONING}."),
    TemplateNote.SYSTEM: (
        80,
        "Each turn recomputes about 80 tokens: the chat template moves the system prompt to the "
        "newest question.",
    ),
    TemplateNote.ANSWERS: (
        7,
        "Each turn recomputes about 7 tokens: the chat template rewrites earlier answers.",
    ),
}


def unstable(note: TemplateNote, num_tokens: int) -> ModelInfo:
    return replace(
        fake_engine.MODEL,
        template_stable=False,
        template_note=note,
        template_recomputed_tokens=num_tokens,
    )


@contextmanager
def stage_with(model: ModelInfo, qtbot: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(fake_engine, "MODEL", model)
    with window_stage(qtbot) as stage:
        yield stage


@pytest.mark.parametrize("note", MODELS)
def test_the_cost_of_each_turn_is_told_with_its_reason(note: TemplateNote) -> None:
    num_tokens, expected = MODELS[note]
    assert template_words(unstable(note, num_tokens)) == expected


def test_nothing_is_said_of_a_stable_template() -> None:
    assert template_words(fake_engine.MODEL) == ""


def test_a_model_without_a_template_and_one_that_fails_are_named() -> None:
    absent = replace(fake_engine.MODEL, has_chat_template=False, template_note=TemplateNote.ABSENT)
    assert template_words(absent).startswith("The model has no chat template")
    failing = replace(
        fake_engine.MODEL, template_note=TemplateNote.REFUSES, template_error="only for pictures"
    )
    assert template_words(failing) == "The model's chat template fails: only for pictures"


def test_a_template_without_a_system_role_is_told_beside_the_cost() -> None:
    model = replace(unstable(TemplateNote.ANSWERS, 7), takes_system_message=False)
    assert template_words(model).splitlines() == [
        MODELS[TemplateNote.ANSWERS][1],
        "The model's chat template takes no system prompt: it is put before the first question.",
    ]


def test_an_empty_tab_and_the_status_line_show_the_cost(
    qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = unstable(TemplateNote.REASONING, 1234)
    with stage_with(model, qtbot, monkeypatch) as stage:
        label = stage.page.empty_state.template
        assert label.isVisible()
        assert label.text() == MODELS[TemplateNote.REASONING][1]
        assert "recomputes about 1,234 tokens" in stage.window.status_strip.model.toolTip()


def test_an_empty_tab_says_nothing_more_of_a_stable_template(qtbot: Any) -> None:
    with window_stage(qtbot) as stage:
        assert not stage.page.empty_state.template.isVisible()
        assert "recomputes" not in stage.window.status_strip.model.toolTip()


def test_the_words_are_there_in_chinese(qapp: Any) -> None:
    language = Language("zh_CN")
    language.install()
    try:
        words = template_words(unstable(TemplateNote.REASONING, 1234))
        assert words == "每一轮约需重新计算 1,234 个词元：对话模板会删去先前回答中的推理过程。"
    finally:
        language.remove()
