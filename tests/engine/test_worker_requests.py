"""Requests through the engine thread: several answers, forks, pauses, continued answers, pins."""

import time

from engine.api.commands import (
    Continue,
    CountTokens,
    EditCost,
    Fork,
    LoadModel,
    LocateBlocks,
    Pause,
    PauseEngine,
    Pin,
    Resume,
    ResumeEngine,
    StepEngine,
    Submit,
    SubscribePool,
    Truncate,
    Unpin,
)
from engine.api.events import (
    BlocksLocated,
    CommandFailed,
    EditCostReady,
    ModelLoaded,
    RequestFinished,
    RequestPaused,
    RequestResumed,
    RequestTruncated,
    TokensCounted,
    TokensGenerated,
)
from engine.api.params import ChatMessage
from tests.helpers.fake_loaded import install_fake_loader
from tests.helpers.hash_runner import reference_output
from tests.helpers.talk import submit

LOAD = LoadModel(models_dir="")


def loaded(talk, monkeypatch) -> None:
    install_fake_loader(monkeypatch)
    talk.send(LOAD)
    talk.until(ModelLoaded)


def test_several_answers_have_seeds_of_their_own(talk, monkeypatch):
    loaded(talk, monkeypatch)
    command = submit("a")
    talk.send(Submit(("a", "b"), "c", command.messages, command.params))
    seeds = [talk.until(RequestFinished, request_id=name).seed for name in "ab"]
    assert seeds[0] == 0
    assert seeds[1] not in (0, 1)


def test_fork_through_the_thread(talk, monkeypatch):
    loaded(talk, monkeypatch)
    talk.send(PauseEngine(), submit("a", max_tokens=6), StepEngine(3))
    talk.until(TokensGenerated, request_id="a")
    talk.send(Fork("a", "b", "other", command_id="f"), ResumeEngine())
    first = talk.until(RequestFinished, request_id="a").turn
    second = talk.until(RequestFinished, request_id="b").turn
    assert first == second
    talk.send(Fork("gone", "x", "y", command_id="none"))
    assert talk.until(CommandFailed, command_id="none").error.code == "unknown_id"


def test_pause_and_resume_of_a_request(talk, monkeypatch):
    loaded(talk, monkeypatch)
    talk.send(PauseEngine(), submit("a", max_tokens=6), StepEngine(2), Pause("a"), ResumeEngine())
    talk.until(RequestPaused)
    time.sleep(0.05)
    talk.send(Resume("a"))
    talk.until(RequestResumed)
    assert talk.until(RequestFinished).usage.output_tokens == 6


def test_truncate_through_the_thread(talk, monkeypatch):
    loaded(talk, monkeypatch)
    talk.send(PauseEngine(), submit("a", max_tokens=6), StepEngine(4))
    prompt = len("hello engine")
    while len(talk.text("a")) < 4:
        talk.until(TokensGenerated, request_id="a")
        talk.events.extend(talk.client.poll_events())
    talk.send(Truncate("a", prompt + 1), Truncate("a", prompt - 1, command_id="short"))
    cut = talk.until(RequestTruncated, request_id="a")
    assert (cut.num_tokens, cut.output_tokens) == (prompt + 1, 1)
    assert talk.until(CommandFailed, command_id="short").error.code == "invalid_value"
    talk.send(ResumeEngine())
    done = talk.until(RequestFinished, request_id="a")
    ids = [ord(char) for char in "hello engine"]
    assert done.turn.output_ids == tuple(reference_output(ids, 6))


def test_continue_goes_on_with_the_same_turn(talk, monkeypatch):
    loaded(talk, monkeypatch)
    question = submit("a")
    talk.send(question)
    turn = talk.until(RequestFinished, request_id="a").turn
    answer = ChatMessage("assistant", "so far", turn)
    talk.send(Continue("b", "c", (*question.messages, answer), question.params))
    joined = talk.until(RequestFinished, request_id="b").turn
    whole = reference_output([ord(char) for char in "hello engine"], 8)
    assert joined.prompt_ids == turn.prompt_ids
    assert joined.output_ids == tuple(whole)


def test_pin_keeps_blocks_used_until_unpin(talk, monkeypatch):
    loaded(talk, monkeypatch)
    command = submit("a", "x" * 30)
    talk.send(command)
    talk.until(RequestFinished)
    talk.send(SubscribePool(), Pin("c", command.messages), CountTokens("", command_id="1"))
    talk.until(TokensCounted, command_id="1")
    deadline = time.monotonic() + 5.0
    while talk.client.latest_snapshot().num_used != 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert talk.client.latest_snapshot().num_used == 3
    talk.send(Unpin("c"))
    while talk.client.latest_snapshot().num_used and time.monotonic() < deadline:
        time.sleep(0.01)
    assert talk.client.latest_snapshot().num_used == 0


def test_edit_cost_counts_from_the_edited_message(talk, monkeypatch):
    loaded(talk, monkeypatch)
    messages = (ChatMessage("system", "s" * 20), ChatMessage("user", "u" * 12))
    talk.send(
        EditCost("c", messages, 1, command_id="e"), EditCost("c", messages, 2, command_id="x")
    )
    cost = talk.until(EditCostReady, command_id="e")
    assert (cost.invalidated_tokens, cost.invalidated_blocks) == (12, 0)
    assert cost.recompute_s == 0.0
    assert talk.until(CommandFailed, command_id="x").error.code == "invalid_value"


def test_edit_cost_counts_the_answer_at_the_end(talk, monkeypatch):
    loaded(talk, monkeypatch)
    question = ChatMessage("user", "u" * 12)
    talk.send(submit("a", question.content, max_tokens=6))
    done = talk.until(RequestFinished, request_id="a")
    text = "".join(e.text for e in talk.events if isinstance(e, TokensGenerated)) + done.text
    answer = ChatMessage("assistant", text, done.turn)
    talk.send(
        EditCost("c", (question, answer), 0, command_id="question"),
        EditCost("c", (question, answer), 1, command_id="answer"),
        EditCost("c", (question,), 0, command_id="alone"),
    )
    alone = talk.until(EditCostReady, command_id="alone")
    whole = talk.until(EditCostReady, command_id="question")
    last = talk.until(EditCostReady, command_id="answer")
    assert whole.invalidated_tokens == alone.invalidated_tokens + 6
    assert last.invalidated_tokens == 6
    assert last.kept_tokens == alone.kept_tokens + alone.invalidated_tokens
    assert whole.kept_tokens == alone.kept_tokens


def test_edit_cost_counts_the_blocks_that_are_in_the_pool(talk, monkeypatch):
    loaded(talk, monkeypatch)
    messages = (ChatMessage("system", "s" * 20), ChatMessage("user", "u" * 30))
    talk.send(Submit(("a",), "c", messages, submit("x", max_tokens=1).params))
    talk.until(RequestFinished, request_id="a")
    talk.send(
        EditCost("c", messages, 1, command_id="question"),
        EditCost("c", messages, 0, command_id="system"),
        EditCost("c", (*messages, ChatMessage("user", "later")), 2, command_id="later"),
    )
    # Of 50 tokens six full blocks of eight are there; two of them hold the system prompt alone.
    question = talk.until(EditCostReady, command_id="question")
    assert question.invalidated_blocks == 4
    assert question.recompute_s > 0.0
    assert talk.until(EditCostReady, command_id="system").invalidated_blocks == 6
    assert talk.until(EditCostReady, command_id="later").invalidated_blocks == 0


def test_blocks_of_a_branch_are_located(talk, monkeypatch):
    loaded(talk, monkeypatch)
    talk.send(submit("a", "u" * 20, max_tokens=6))
    done = talk.until(RequestFinished, request_id="a")
    text = "".join(e.text for e in talk.events if isinstance(e, TokensGenerated)) + done.text
    question = ChatMessage("user", "u" * 20)
    answer = ChatMessage("assistant", text, done.turn)
    for name, messages in (
        ("whole", (question, answer)),
        ("question", (question,)),
        ("longer", (question, answer, ChatMessage("user", "more"))),
        ("other", (ChatMessage("user", "x" * 20),)),
    ):
        talk.send(LocateBlocks("c-a", messages, command_id=name))
    whole = talk.until(BlocksLocated, command_id="whole")
    asked = talk.until(BlocksLocated, command_id="question")
    longer = talk.until(BlocksLocated, command_id="longer")
    other = talk.until(BlocksLocated, command_id="other")
    # The last token has no KV: of 26 tokens 25 are in the pool, three full blocks of eight.
    assert (len(whole.block_ids), whole.num_tokens) == (3, 26)
    assert asked.block_ids == whole.block_ids[:2]
    assert (longer.block_ids, longer.num_tokens) == (whole.block_ids, 30)
    assert other.block_ids == ()
