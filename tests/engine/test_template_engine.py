"""Chat templates in a running engine: refused, damaged, rewriting and absent ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine.api.commands import Configure, LoadModel, Submit
from engine.api.events import (
    Configured,
    FinishReason,
    ModelInfo,
    ModelLoaded,
    ModelLoadFailed,
    RequestFinished,
    RequestQueued,
    TemplateNote,
    TokensGenerated,
)
from engine.api.params import ChatMessage, EngineConfig, SamplingParams
from tests.helpers.talk import Talk, talk_with_engine
from tests.helpers.tiny_gguf import CHATML, TinyGguf

BLOCK = 16
CONFIG = EngineConfig(
    num_blocks=32,
    block_size=BLOCK,
    device="cpu",
    dtype="float32",
    backend="paged_reference",
    num_threads=1,
)
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}" + CHATML
)
ALTERNATES = (
    "{% for one in messages %}{% if (one.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{% endfor %}" + CHATML
)
FORGETFUL = CHATML.replace(
    "message['content']",
    "('(said)' if message['role'] == 'assistant' else message['content'])",
)
QUESTION = ChatMessage("user", "How many bridges are there in the old town, and who built them?")


@pytest.fixture
def talk() -> Iterator[Talk]:
    with talk_with_engine(patience_s=10.0) as made:
        yield made


def load(
    talk: Talk, folder: Path, template: str | None, config: EngineConfig = CONFIG
) -> ModelInfo:
    path = TinyGguf(extra={"tokenizer.chat_template": template}).write(folder / "tiny.gguf")
    talk.send(LoadModel(models_dir=str(folder), path=str(path), config=config))
    loaded = talk.until(ModelLoaded, 60.0)
    assert isinstance(loaded, ModelLoaded)
    return loaded.model


def ask(talk: Talk, name: str, *messages: ChatMessage) -> RequestFinished:
    params = SamplingParams(temperature=0.0, max_tokens=12, seed=0)
    talk.send(Submit((name,), "c", messages, params))
    finished = talk.until(RequestFinished, 60.0, request_id=name)
    assert isinstance(finished, RequestFinished)
    return finished


def reply(talk: Talk, name: str, finished: RequestFinished) -> ChatMessage:
    shown = [e.text for e in talk.events if isinstance(e, TokensGenerated) and e.request_id == name]
    return ChatMessage("assistant", "".join(shown) + finished.text, finished.turn)


def queued(talk: Talk, name: str) -> RequestQueued:
    return next(e for e in talk.events if isinstance(e, RequestQueued) and e.request_id == name)


def test_a_refusal_is_told_in_the_templates_words_and_the_next_message_is_answered(
    talk: Talk, tmp_path: Path
) -> None:
    info = load(talk, tmp_path, ALTERNATES)
    assert info.template_stable
    refused = ask(talk, "a", QUESTION, QUESTION)
    assert refused.reason is FinishReason.ERROR
    assert refused.error is not None
    assert refused.error.code == "chat_template"
    assert refused.error.message.endswith("refuses these messages: Roles must alternate")
    assert ask(talk, "b", QUESTION).reason is FinishReason.LENGTH


def test_a_template_without_system_messages_reads_the_prompt_with_the_question(
    talk: Talk, tmp_path: Path
) -> None:
    info = load(talk, tmp_path, NO_SYSTEM)
    assert not info.takes_system_message
    instructed = ask(talk, "a", ChatMessage("system", "Be kind"), QUESTION)
    plain = ask(talk, "b", ChatMessage("user", f"Be kind\n\n{QUESTION.content}"))
    assert instructed.reason is plain.reason is FinishReason.LENGTH
    assert instructed.usage.prompt_tokens == plain.usage.prompt_tokens


@pytest.mark.parametrize("template", [CHATML, FORGETFUL], ids=["stable", "rewriting"])
def test_what_is_said_to_be_recomputed_is_what_the_cache_does_not_give(
    template: str, talk: Talk, tmp_path: Path
) -> None:
    info = load(talk, tmp_path, template)
    assert info.template_stable == (template == CHATML)
    first = ask(talk, "a", QUESTION)
    messages = [QUESTION, reply(talk, "a", first), ChatMessage("user", "And why?")]
    second = ask(talk, "b", *messages)
    recomputed = queued(talk, "b").reencoded_tokens
    # All that was computed in the first turn: its last token was sampled, but not fed.
    computed = first.usage.prompt_tokens + first.usage.output_tokens - 1
    if template == CHATML:
        assert recomputed == 0
        assert second.usage.cached_tokens == computed // BLOCK * BLOCK
    else:
        assert recomputed > 0
        assert second.usage.cached_tokens == first.usage.prompt_tokens // BLOCK * BLOCK


def test_a_template_with_a_syntax_error_is_named_with_its_line(talk: Talk, tmp_path: Path) -> None:
    source = "{% for m in messages %}\n{{ m.content }\n{% endfor %}"
    path = TinyGguf(extra={"tokenizer.chat_template": source}).write(tmp_path / "tiny.gguf")
    talk.send(LoadModel(models_dir=str(tmp_path), path=str(path), config=CONFIG))
    failed = talk.until(ModelLoadFailed, 60.0)
    assert isinstance(failed, ModelLoadFailed)
    assert failed.error.code == "chat_template"
    assert failed.error.message.startswith("The chat template is damaged in line 2: ")
    assert "another chat template" in failed.error.action


def test_a_model_without_a_template_answers_and_says_what_stands_for_it(
    talk: Talk, tmp_path: Path
) -> None:
    info = load(talk, tmp_path, None)
    assert not info.has_chat_template
    assert info.template_note is TemplateNote.ABSENT
    first = ask(talk, "a", ChatMessage("system", "Be kind"), QUESTION)
    assert first.reason is FinishReason.LENGTH
    messages = (QUESTION, reply(talk, "a", first), ChatMessage("user", "And why?"))
    second = ask(talk, "b", ChatMessage("system", "Be kind"), *messages)
    assert second.reason is FinishReason.LENGTH
    assert queued(talk, "b").reencoded_tokens == 0
    assert second.usage.cached_tokens > 0


def test_a_template_that_was_chosen_is_used_from_the_next_load_on(
    talk: Talk, tmp_path: Path
) -> None:
    plain = load(talk, tmp_path, None)
    assert "chatml" in plain.chat_template_choices
    chosen = replace(CONFIG, chat_template="chatml")
    talk.send(Configure(chosen, command_id="choose"))
    configured = talk.until(Configured, 60.0)
    assert isinstance(configured, Configured)
    assert (configured.applied, configured.needs_reload) == ((), ("chat_template",))
    short = ChatMessage("user", "Hi")
    first = ask(talk, "a", short)
    said = reply(talk, "a", first)
    talk.events.clear()
    info = load(talk, tmp_path, None, chosen)
    assert (info.chat_template, info.template_note) == ("chatml", TemplateNote.NONE)
    # What was said before is encoded again: it belongs to the other template.
    assert ask(talk, "b", short, said, short).reason is FinishReason.LENGTH
    assert queued(talk, "b").reencoded_tokens > 0


def test_a_template_that_does_not_fit_the_model_is_refused_with_what_is_missing(
    talk: Talk, tmp_path: Path
) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    config = replace(CONFIG, chat_template="gemma")
    talk.send(LoadModel(models_dir=str(tmp_path), path=str(path), config=config))
    failed = talk.until(ModelLoadFailed, 60.0)
    assert isinstance(failed, ModelLoadFailed)
    assert failed.error.code == "chat_template"
    assert "<start_of_turn>" in failed.error.message
    assert "chatml" in failed.error.action
