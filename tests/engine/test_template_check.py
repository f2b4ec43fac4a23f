"""What is found out of a chat template when a model is loaded."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine import template_check
from engine.api.events import ModelInfo, TemplateNote
from engine.api.params import ChatMessage, EngineConfig
from engine.chat_encoder import ChatEncoder
from engine.chat_format import ChatFormat
from engine.chat_template import ChatTemplate
from engine.fallback_template import FALLBACK_STOP, fallback_template
from engine.model_loader import LoadedEngine
from engine.template_check import TemplateReport, check_template
from tests.helpers.chat_models import BY_NAME, CHAT_MODELS, ChatModel
from tests.helpers.tiny_chat import answer, fed_so_far, system, user
from tests.helpers.tiny_gguf import CHATML, TinyGguf
from tests.helpers.tiny_tokenizer import END_ID, tiny_tokenizer


def check(source: str, **variables: str) -> TemplateReport:
    return check_template(tiny_tokenizer(), ChatTemplate(source, variables))


@pytest.mark.parametrize("model", CHAT_MODELS, ids=lambda model: model.name)
def test_public_formats_are_told_apart(model: ChatModel) -> None:
    report = check_template(model.tokenizer(), model.template())
    assert report.note == model.rewrites
    assert report.is_stable == (not model.rewrites)
    assert (report.recomputed_tokens > 0) == bool(model.rewrites)
    assert report.takes_system == model.system
    assert report.error == ""


def test_the_number_is_that_of_a_real_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each turn of the talk is measured against what the turn before it truly fed."""
    model = BY_NAME["qwen3"]
    recomputed: list[int] = []
    encode = ChatEncoder.encode
    talks: list[list[list[int]]] = []

    def watched(self: ChatEncoder, messages: Sequence[ChatMessage], **options: Any) -> Any:
        prompt = encode(self, messages, **options)
        if len(messages) == 1:
            talks.append([])
        talks[-1].append(prompt.token_ids)
        last = [m.turn for m in messages if m.turn is not None][-1:]
        if last and last[0] is not None and prompt.turn_start == 0:
            fed = [*talks[-1][-2], *last[0].output_ids]
            same = next(i for i, pair in enumerate(zip(prompt.token_ids, fed)) if len({*pair}) > 1)  # noqa: B905 - of different lengths
            recomputed.append(prompt.history_end - same)
        return prompt

    monkeypatch.setattr(ChatEncoder, "encode", watched)
    report = check_template(model.tokenizer(), model.template())
    assert report.recomputed == tuple(recomputed)
    assert report.recomputed_tokens == round(sum(recomputed) / len(recomputed))
    # The answer without its reasoning, and the turn's frame.
    tokenizer = model.tokenizer()
    for count, text in zip(recomputed, template_check._ANSWERS, strict=True):
        assert 0 < count - len(tokenizer.encode_text(text)) < 10


def test_a_template_that_rewords_answers_is_reported() -> None:
    report = check(
        "{% for m in messages %}{{ m.role + ': ' }}"
        "{{ m.content | upper if m.role == 'assistant' else m.content }}{{ '<|im_end|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"
    )
    assert report.note is TemplateNote.ANSWERS
    assert report.recomputed_tokens > 20


def test_a_template_that_refuses_everything_is_reported_in_its_words() -> None:
    report = check("{{ raise_exception('only for pictures') }}")
    assert report.note is TemplateNote.REFUSES
    assert not report.is_stable
    assert report.error == "only for pictures"


def test_a_template_that_breaks_the_sandbox_is_reported() -> None:
    report = check("{{ ''.__class__.__mro__ }}{{ messages.append(1) }}")
    assert report.note is TemplateNote.REFUSES
    assert report.error.startswith("access to attribute '__class__'")


def test_whatever_goes_wrong_the_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object, **_options: object) -> None:
        raise KeyError("nobody foresaw this")

    monkeypatch.setattr(ChatEncoder, "encode", broken)
    report = check(CHATML)
    assert (report.note, report.error) == (
        TemplateNote.REFUSES,
        "KeyError: 'nobody foresaw this'",
    )


@pytest.mark.skipif(sys.gettrace() is not None, reason="each line is traced, which takes longer")
def test_the_check_is_cheap() -> None:
    """Milliseconds of this thread: others use the machine."""
    best = min(_seconds(lambda model=model: check_template(model.tokenizer(), model.template()))
               for model in (BY_NAME["qwen3"], BY_NAME["llama3"]) for _ in range(5))  # fmt: skip
    assert best < 0.02


def _seconds(act: Callable[[], object]) -> float:
    started = time.thread_time()
    act()
    return time.thread_time() - started


# --- a model without a template -------------------------------------------------------------------


def test_without_a_template_a_chat_is_text_that_names_who_speaks() -> None:
    tokenizer = tiny_tokenizer()
    encoder = ChatEncoder(tokenizer, fallback_template({"bos_token": "<|endoftext|>"}))
    messages = [system("Be kind"), user("Hello")]
    prompt = encoder.encode(messages)
    text = "<|endoftext|>Be kind\n\nUser: Hello\n\nAssistant:"
    assert tokenizer.decode(prompt.token_ids, False) == text
    sampled = tokenizer.encode_text(" Hi\n\nUser: and")
    reply = answer(prompt, sampled, tokenizer, FALLBACK_STOP)
    assert reply.content == " Hi"
    messages += [reply, user("Next")]
    second = encoder.encode(messages)
    assert second.token_ids[: second.turn_start] == fed_so_far(messages)
    assert tokenizer.decode(second.token_ids, False) == f"{text} Hi\n\nUser: Next\n\nAssistant:"
    assert second.reencoded_tokens == 0


def test_an_end_token_ends_a_turn_of_plain_text() -> None:
    tokenizer = tiny_tokenizer()
    encoder = ChatEncoder(tokenizer, fallback_template({}))
    messages = [user("Hello")]
    reply = answer(
        encoder.encode(messages), [*tokenizer.encode_text("Hi"), END_ID], tokenizer, FALLBACK_STOP
    )
    text = tokenizer.decode(encoder.encode([*messages, reply, user("Next")]).token_ids, False)
    assert text == "User: Hello\n\nAssistant:Hi<|im_end|>\n\nUser: Next\n\nAssistant:"


# --- in a model that is loaded --------------------------------------------------------------------


def loaded_info(tmp_path: Path, template: str | None) -> ModelInfo:
    return loaded(tmp_path, template).info


def loaded(tmp_path: Path, template: str | None) -> LoadedEngine:
    from engine.engine_builder import build_engine

    path = TinyGguf(extra={"tokenizer.chat_template": template}).write(tmp_path / "tiny.gguf")
    config = EngineConfig(num_blocks=16, device="cpu", dtype="float32", num_threads=1)
    return build_engine(path, tmp_path, config, lambda *_a: None, lambda: False)


def test_a_loaded_model_says_that_its_template_is_stable(tmp_path: Path) -> None:
    info = loaded_info(tmp_path, CHATML)
    assert (info.has_chat_template, info.template_stable) == (True, True)
    assert (info.template_recomputed_tokens, info.template_note) == (0, TemplateNote.NONE)
    assert (info.takes_system_message, info.template_error) == (True, "")


def test_a_loaded_model_says_what_its_template_recomputes(tmp_path: Path) -> None:
    info = loaded_info(tmp_path, BY_NAME["qwen3"].template_source)
    assert (info.has_chat_template, info.template_stable) == (True, False)
    assert info.template_note is TemplateNote.REASONING
    assert info.template_recomputed_tokens > 50


def test_a_loaded_model_without_a_template_says_so_and_can_be_talked_to(tmp_path: Path) -> None:
    info = loaded_info(tmp_path, None)
    assert not info.has_chat_template
    assert info.template_note is TemplateNote.ABSENT
    assert info.template_stable
    chat = ChatFormat.from_folder(next(tmp_path.glob("*/")), tiny_tokenizer())
    assert chat.stop == FALLBACK_STOP
    assert chat.make_encoder().encode([user("Hello")]).token_ids


@pytest.mark.parametrize(("template", "shown"), [(None, " Hi"), (CHATML, " Hi\nUser: x")])
def test_only_without_a_template_does_an_answer_end_where_the_user_would_speak(
    tmp_path: Path, template: str | None, shown: str
) -> None:
    engine = loaded(tmp_path, template)
    stream = engine.core._ledger._make_stream(("never",))
    assert stream.feed(engine.tokenizer.encode_text(" Hi\nUser: x")).text == shown
