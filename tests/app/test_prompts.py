"""The library of system prompts: who has which, what follows a change, what it would cost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.prompt_costs import PromptCost
from app.prompt_files import PromptFileError, read_prompts, write_prompts
from app.store_prompts import SystemPrompt
from tests.helpers.session_stage import SessionStage, session_stage

LONG = " ".join(f"word{n}" for n in range(70))


@pytest.fixture
def stage(tmp_path: Path, qtbot) -> Iterator[SessionStage]:
    with session_stage(tmp_path, qtbot) as made:
        yield made


def talked(stage: SessionStage, question: str = "A question") -> str:
    """An open conversation with one turn."""
    conversation_id = stage.session.new_conversation()
    stage.session.send(conversation_id, question)
    stage.wait_idle(conversation_id)
    return conversation_id


def prompt_of(stage: SessionStage, conversation_id: str) -> str:
    return stage.session.conversation(conversation_id).system_prompt


def names(stage: SessionStage) -> list[str]:
    return [prompt.name for prompt in stage.session.prompts.all()]


# --- the library ---


def test_the_first_start_has_the_default_as_a_prompt_and_the_next_does_not_bring_it_back(
    stage: SessionStage,
) -> None:
    (first,) = stage.session.prompts.all()
    assert stage.session.prompts.default == first
    assert first.text == stage.session.default_system_prompt
    stage.session.prompts.delete(first.prompt_id)
    stage.restart()
    assert stage.session.prompts.all() == []


def test_prompts_and_the_default_survive_a_restart(stage: SessionStage) -> None:
    prompts = stage.session.prompts
    added = prompts.add("Pirate", "Speak like a pirate.")
    prompts.set_default(added.prompt_id)
    stage.restart()
    assert names(stage) == ["Assistant", "Pirate"]
    assert stage.session.prompts.default.text == "Speak like a pirate."
    new = stage.session.new_conversation()
    assert stage.session.conversation(new).prompt_id == added.prompt_id


def test_a_name_that_is_taken_gets_a_number(stage: SessionStage) -> None:
    prompts = stage.session.prompts
    assert [prompts.add(name, "x").name for name in ("", "", "assistant")] == [
        *("New prompt", "New prompt 2", "assistant 2"),
    ]


def test_deleting_is_undone_with_the_default(stage: SessionStage) -> None:
    prompts = stage.session.prompts
    added = prompts.add("Pirate", "Speak like a pirate.")
    prompts.set_default(added.prompt_id)
    prompts.delete(added.prompt_id)
    assert prompts.default is None
    assert prompts.undo_delete() == added
    assert prompts.default == added
    assert prompts.undo_delete() is None


def test_a_text_that_was_made_the_default_by_hand_is_no_prompt(stage: SessionStage) -> None:
    stage.session.set_default_system_prompt("By hand.")
    assert stage.session.prompts.default is None


# --- who has which ---


def test_those_who_begin_alike_are_told(stage: SessionStage) -> None:
    stage.start()
    prompts = stage.session.prompts
    pirate = prompts.add("Pirate", "Speak like a pirate.")
    ids = [stage.session.new_conversation() for _ in range(3)]
    prompts.apply(pirate.prompt_id, ids[:2])
    shared = [c.conversation_id for c in prompts.sharers(pirate.text)]
    assert shared == ids[:2]
    assert prompts.sharers("") == []


def test_a_change_reaches_empty_conversations_only(stage: SessionStage) -> None:
    stage.start()
    prompts = stage.session.prompts
    default = prompts.default
    old = default.text
    used, empty = talked(stage), stage.session.new_conversation()
    prompts.change(default.prompt_id, "Renamed", "Another text.")
    assert prompt_of(stage, used) == old
    assert prompt_of(stage, empty) == "Another text."
    assert stage.session.default_system_prompt == "Another text."
    changed = prompts.get(default.prompt_id)
    assert [c.conversation_id for c in prompts.behind(changed)] == [used]
    prompts.apply(default.prompt_id, [used])
    assert prompt_of(stage, used) == "Another text."
    assert prompts.behind(changed) == []


def test_a_name_alone_changes_no_conversation(stage: SessionStage) -> None:
    prompts = stage.session.prompts
    default = prompts.default
    empty = stage.session.new_conversation()
    before = prompt_of(stage, empty)
    prompts.change(default.prompt_id, "Renamed", default.text)
    assert prompts.default.name == "Renamed"
    assert prompt_of(stage, empty) == before


def test_a_text_typed_by_hand_leaves_the_library(stage: SessionStage) -> None:
    conversation_id = stage.session.new_conversation()
    stage.session.set_system_prompt(conversation_id, "By hand.")
    conversation = stage.session.conversation(conversation_id)
    assert conversation.prompt_id == ""
    assert stage.session.prompts.of(conversation) is None
    default = stage.session.prompts.default
    stage.session.set_system_prompt(conversation_id, default.text)
    assert stage.session.prompts.of(conversation) == default


# --- what it costs ---


def cost(stage: SessionStage, ids: list[str], text: str) -> PromptCost:
    told: list[PromptCost] = []
    costs = stage.session.prompts.costs(stage.session)
    costs.told.connect(told.append)
    costs.ask(ids, text)
    stage.wait(lambda: bool(told))
    return told[0]


def test_a_quite_different_prompt_unshares_all_and_computes_all_again(stage: SessionStage) -> None:
    stage.start()
    stage.session.set_default_system_prompt(LONG)
    ids = [talked(stage, "One"), talked(stage, "Two")]
    told = cost(stage, ids, "Quite different " + LONG)
    # 70 words and what the template puts around them, in blocks of 16.
    assert told.unshared_blocks == 4
    # Of each conversation all of the prompt at least, instead of the end only.
    assert told.computed_tokens > 2 * 72
    assert told.computed_blocks >= 2 * 5
    assert told.computed_before < 2 * 40


def test_a_change_at_the_end_keeps_the_blocks_before_it(stage: SessionStage) -> None:
    stage.start()
    stage.session.set_default_system_prompt(LONG)
    ids = [talked(stage, "One"), talked(stage, "Two")]
    told = cost(stage, ids, LONG.replace("word69", "other"))
    assert told.unshared_blocks == 0
    whole = cost(stage, ids, "Quite different " + LONG)
    assert told.computed_before < told.computed_tokens < whole.computed_tokens


def test_the_same_prompt_costs_nothing(stage: SessionStage) -> None:
    stage.start()
    stage.session.set_default_system_prompt(LONG)
    told = cost(stage, [talked(stage)], LONG)
    assert (told.unshared_blocks, told.computed_tokens) == (0, told.computed_before)


def test_without_a_model_the_cost_is_not_known(stage: SessionStage) -> None:
    conversation_id = stage.session.new_conversation()
    assert not cost(stage, [conversation_id], "x").is_known
    assert cost(stage, [], "x").is_known


def test_only_the_newest_question_is_answered(stage: SessionStage) -> None:
    stage.start()
    ids = [talked(stage)]
    told: list[PromptCost] = []
    costs = stage.session.prompts.costs(stage.session)
    costs.told.connect(told.append)
    for text in ("first", "second", "third"):
        costs.ask(ids, text)
    stage.wait(lambda: bool(told))
    stage.qtbot.wait(50)
    assert [one.text for one in told] == ["third"]


def test_a_conversation_that_was_closed_meanwhile_costs_nothing(stage: SessionStage) -> None:
    stage.start()
    ids = [talked(stage, "One"), talked(stage, "Two")]
    stage.session.close_conversation(ids[0])
    told = cost(stage, ids, "Quite different")
    assert told.conversation_ids == tuple(ids)
    assert told.computed_tokens == cost(stage, ids[1:], "Quite different").computed_tokens > 0
    stage.session.close_conversation(ids[1])
    assert cost(stage, ids, "Quite different") == PromptCost("Quite different", tuple(ids))


# --- files ---


def test_a_library_goes_into_a_file_and_comes_back(tmp_path: Path) -> None:
    prompts = [SystemPrompt("A", "text\nof two lines"), SystemPrompt("缓存 <b>", "é 🦓")]
    write_prompts(prompts, tmp_path / "all.json")
    assert read_prompts(tmp_path / "all.json") == [(p.name, p.text) for p in prompts]
    assert [path.name for path in tmp_path.iterdir()] == ["all.json"]


def test_one_prompt_is_a_text_file(tmp_path: Path) -> None:
    write_prompts([SystemPrompt("A", "its text")], tmp_path / "My prompt.txt")
    assert (tmp_path / "My prompt.txt").read_text() == "its text\n"
    assert read_prompts(tmp_path / "My prompt.txt") == [("My prompt", "its text")]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "another kind"),
        ({"format": "quire-conversations"}, "another kind"),
        ({"format": "quire-prompts", "version": 2}, "version 2"),
        ({"format": "quire-prompts", "version": 1}, "'prompts' is missing"),
        ({"format": "quire-prompts", "version": 1, "prompts": [{"name": "x"}]}, "is missing"),
        ({"format": "quire-prompts", "version": 1, "prompts": [{"name": 1, "text": ""}]}, "text"),
    ],
)
def test_what_is_no_library_is_refused(tmp_path: Path, document: object, reason: str) -> None:
    (tmp_path / "bad.json").write_text(json.dumps(document))
    with pytest.raises(PromptFileError, match=reason):
        read_prompts(tmp_path / "bad.json")


def test_a_file_that_is_no_text_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PromptFileError, match="not a text file"):
        read_prompts(tmp_path / "a.txt")
    with pytest.raises(PromptFileError, match="cannot be read"):
        read_prompts(tmp_path / "none.txt")
