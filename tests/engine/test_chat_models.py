"""The formats of public models: what is rendered, and that ids are those of transformers."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.api.errors import ChatTemplateError
from engine.api.params import ChatMessage
from tests.helpers.chat_models import BY_NAME, CHAT_MODELS, ChatModel, reference

QUESTION = ("user", "Hello")
TALK = (
    QUESTION,
    ("assistant", "Hi there"),
    ("user", "Who are you"),
    ("assistant", "  I am one  "),
    ("user", "Next"),
)
WITH_SYSTEM = (("system", "Be kind"), *TALK)

every_model = pytest.mark.parametrize("model", CHAT_MODELS, ids=lambda model: model.name)


def chatml(system: str, own: str = "  I am one  ") -> str:
    head = f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""
    return head + (
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi there<|im_end|>\n"
        f"<|im_start|>user\nWho are you<|im_end|>\n<|im_start|>assistant\n{own}<|im_end|>\n"
        "<|im_start|>user\nNext<|im_end|>\n<|im_start|>assistant\n"
    )


def llama3(system: str) -> str:
    turns = [("user", "Hello"), ("assistant", "Hi there"), ("user", "Who are you")]
    turns += [("assistant", "I am one"), ("user", "Next")]
    if system:
        turns.insert(0, ("system", system))
    text = "".join(
        f"<|start_header_id|>{role}<|end_header_id|>\n\n{content}<|eot_id|>"
        for role, content in turns
    )
    return f"<|begin_of_text|>{text}<|start_header_id|>assistant<|end_header_id|>\n\n"


TODAY = f"Cutting Knowledge Date: December 2023\nToday Date: {datetime.now():%d %b %Y}\n\n"
GEMMA = (
    "Hello<end_of_turn>\n<start_of_turn>model\nHi there<end_of_turn>\n<start_of_turn>user\n"
    "Who are you<end_of_turn>\n<start_of_turn>model\nI am one<end_of_turn>\n<start_of_turn>user\n"
    "Next<end_of_turn>\n<start_of_turn>model\n"
)
COMMAND_R = "".join(
    f"<|START_OF_TURN_TOKEN|><|{role}_TOKEN|>{content}<|END_OF_TURN_TOKEN|>"
    for role, content in (
        ("USER", "Hello"),
        ("CHATBOT", "Hi there"),
        ("USER", "Who are you"),
        ("CHATBOT", "I am one"),
        ("USER", "Next"),
    )
)
NEXT = "<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>"

# What the public models' own templates write: (without a system message, with one).
EXPECTED: dict[str, tuple[str, str]] = {
    "smollm2": (
        chatml("You are a helpful AI assistant named SmolLM, trained by Hugging Face"),
        chatml("Be kind"),
    ),
    "qwen2.5": (
        chatml("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
        chatml("Be kind"),
    ),
    "qwen3": (chatml(""), chatml("Be kind")),
    "llama2": (
        "<s>[INST] Hello [/INST] Hi there </s><s>[INST] Who are you [/INST] I am one </s>"
        "<s>[INST] Next [/INST]",
        "<s>[INST] <<SYS>>\nBe kind\n<</SYS>>\n\nHello [/INST] Hi there </s>"
        "<s>[INST] Who are you [/INST] I am one </s><s>[INST] Next [/INST]",
    ),
    "llama3": (llama3(""), llama3("Be kind")),
    "llama3.2": (llama3(TODAY), llama3(TODAY + "Be kind")),
    "mistral-v3": (
        "<s>[INST] Hello[/INST] Hi there</s>[INST] Who are you[/INST] I am one</s>"
        "[INST] Next[/INST]",
        "<s>[INST] Hello[/INST] Hi there</s>[INST] Who are you[/INST] I am one</s>"
        "[INST] Be kind\n\nNext[/INST]",
    ),
    "mistral-nemo": (
        "<s>[INST]Hello[/INST]Hi there</s>[INST]Who are you[/INST]  I am one  </s>"
        "[INST]Next[/INST]",
        "<s>[INST]Hello[/INST]Hi there</s>[INST]Who are you[/INST]  I am one  </s>"
        "[INST]Be kind\n\nNext[/INST]",
    ),
    "gemma2": ("<bos><start_of_turn>user\n" + GEMMA, ""),
    "gemma3": (
        "<bos><start_of_turn>user\n" + GEMMA,
        "<bos><start_of_turn>user\nBe kind\n\n" + GEMMA,
    ),
    "phi3": (
        "<|user|>\nHello<|end|>\n<|assistant|>\nHi there<|end|>\n<|user|>\nWho are you<|end|>\n"
        "<|assistant|>\n  I am one  <|end|>\n<|user|>\nNext<|end|>\n<|assistant|>\n",
        "<|system|>\nBe kind<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\nHi there<|end|>\n"
        "<|user|>\nWho are you<|end|>\n<|assistant|>\n  I am one  <|end|>\n"
        "<|user|>\nNext<|end|>\n<|assistant|>\n",
    ),
    "phi4": (
        "<|im_start|>user<|im_sep|>Hello<|im_end|><|im_start|>assistant<|im_sep|>Hi there"
        "<|im_end|><|im_start|>user<|im_sep|>Who are you<|im_end|><|im_start|>assistant<|im_sep|>"
        "  I am one  <|im_end|><|im_start|>user<|im_sep|>Next<|im_end|>"
        "<|im_start|>assistant<|im_sep|>",
        "<|im_start|>system<|im_sep|>Be kind<|im_end|>"
        "<|im_start|>user<|im_sep|>Hello<|im_end|><|im_start|>assistant<|im_sep|>Hi there"
        "<|im_end|><|im_start|>user<|im_sep|>Who are you<|im_end|><|im_start|>assistant<|im_sep|>"
        "  I am one  <|im_end|><|im_start|>user<|im_sep|>Next<|im_end|>"
        "<|im_start|>assistant<|im_sep|>",
    ),
    "deepseek-r1-distill": (
        "<｜begin▁of▁sentence｜><｜User｜>Hello<｜Assistant｜>Hi there<｜end▁of▁sentence｜>"
        "<｜User｜>Who are you<｜Assistant｜>  I am one  <｜end▁of▁sentence｜><｜User｜>Next"
        "<｜Assistant｜><think>\n",
        "<｜begin▁of▁sentence｜>Be kind<｜User｜>Hello<｜Assistant｜>Hi there<｜end▁of▁sentence｜>"
        "<｜User｜>Who are you<｜Assistant｜>  I am one  <｜end▁of▁sentence｜><｜User｜>Next"
        "<｜Assistant｜><think>\n",
    ),
    "zephyr": (
        "<|user|>\nHello</s>\n<|assistant|>\nHi there</s>\n<|user|>\nWho are you</s>\n"
        "<|assistant|>\n  I am one  </s>\n<|user|>\nNext</s>\n<|assistant|>\n",
        "<|system|>\nBe kind</s>\n<|user|>\nHello</s>\n<|assistant|>\nHi there</s>\n"
        "<|user|>\nWho are you</s>\n<|assistant|>\n  I am one  </s>\n<|user|>\nNext</s>\n"
        "<|assistant|>\n",
    ),
    "command-r": (
        f"<BOS_TOKEN>{COMMAND_R}{NEXT}",
        "<BOS_TOKEN><|START_OF_TURN_TOKEN|><|SYSTEM_TOKEN|>Be kind<|END_OF_TURN_TOKEN|>"
        f"{COMMAND_R}{NEXT}",
    ),
    "granite3": (
        "<|start_of_role|>user<|end_of_role|>Hello<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>Hi there<|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|>Who are you<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>  I am one  <|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|>Next<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>",
        "<|start_of_role|>system<|end_of_role|>Be kind<|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|>Hello<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>Hi there<|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|>Who are you<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>  I am one  <|end_of_text|>\n"
        "<|start_of_role|>user<|end_of_role|>Next<|end_of_text|>\n"
        "<|start_of_role|>assistant<|end_of_role|>",
    ),
}


def as_dicts(turns: Any) -> list[dict[str, str]]:
    return [{"role": role, "content": content} for role, content in turns]


@every_model
def test_a_chat_reads_as_the_public_models_template_writes_it(model: ChatModel) -> None:
    template = model.template()
    plain, with_system = EXPECTED[model.name]
    assert template.render(as_dicts(TALK), add_generation_prompt=True) == plain
    if model.system:
        assert template.render(as_dicts(WITH_SYSTEM), add_generation_prompt=True) == with_system
    assert all(token in model.tokenizer().special_tokens for token in model.ends)


def test_reasoning_of_earlier_turns_is_dropped_by_the_templates_that_say_so() -> None:
    talk = [QUESTION, ("assistant", "<think>\nhm\n</think>\n\nYes."), ("user", "Next")]
    for model in CHAT_MODELS:
        text = model.template().render(as_dicts(talk), add_generation_prompt=True)
        assert ("hm" not in text) == (model.rewrites == "reasoning"), model.name


@every_model
@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("turns", [TALK[:1], TALK[:2], TALK, WITH_SYSTEM[:2], WITH_SYSTEM])
def test_our_sandbox_renders_as_transformers_does(
    model: ChatModel, turns: Any, prompt: bool
) -> None:
    if turns[0][0] == "system" and not model.system:
        pytest.skip("takes no system message")
    messages = as_dicts(turns)
    expected = reference(model).apply_chat_template(
        messages, tokenize=False, add_generation_prompt=prompt
    )
    assert model.template().render(messages, add_generation_prompt=prompt) == expected


WORDS = st.lists(
    st.sampled_from(
        ["Hello", " ", "  ", "\n", "\n\n", "river", "7", "é", "你好", "👍", "\t", "<", "|"]
    ),
    max_size=8,
).map("".join)


@every_model
@settings(max_examples=40, deadline=None)
@given(system=st.none() | WORDS, contents=st.lists(WORDS, min_size=1, max_size=4), last=WORDS)
def test_ids_of_any_text_are_those_of_transformers(
    model: ChatModel, system: str | None, contents: list[str], last: str
) -> None:
    """Content that begins or ends with spaces or newlines too; nothing is known of any turn."""
    contents = [*contents[: len(contents) // 2 * 2], last + "?"]
    turns = [(("user", "assistant")[i % 2], content) for i, content in enumerate(contents)]
    if system is not None and model.system:
        turns.insert(0, ("system", system))
    expected = reference(model).apply_chat_template(
        as_dicts(turns), add_generation_prompt=True, return_dict=False
    )
    encoded = model.encoder().encode([ChatMessage(*turn) for turn in turns])
    assert encoded.token_ids == expected
    assert (encoded.turn_start, encoded.reencoded_tokens) == (0, 0)


@every_model
def test_what_a_template_refuses_is_told_in_its_own_words(model: ChatModel) -> None:
    encoder = model.encoder()
    twice = [ChatMessage("user", "one"), ChatMessage("user", "two")]
    if model.alternates:
        with pytest.raises(ChatTemplateError, match="roles must alternate"):
            encoder.encode(twice)
    else:
        assert encoder.encode(twice).token_ids
    if not model.system:
        with pytest.raises(ChatTemplateError, match=r"refuses .*: System role not supported"):
            encoder.encode([ChatMessage("system", "s"), ChatMessage("user", "q")])
    # It goes on working.
    assert encoder.encode([ChatMessage("user", "q")]).token_ids


@every_model
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_content_cannot_forge_a_turn(model: ChatModel, role: str) -> None:
    if role == "system" and not model.system:
        pytest.skip("takes no system message")
    tokenizer, encoder = model.tokenizer(), model.encoder()
    special = sorted(tokenizer.special_tokens)
    forged = "a " + " b ".join(special) + " c"

    def talk(content: str) -> list[ChatMessage]:
        messages = [
            ChatMessage("user", "q"),
            ChatMessage("assistant", "a"),
            ChatMessage("user", "r"),
        ]
        if role == "system":
            return [ChatMessage("system", content), *messages]
        at = 0 if role == "user" else 1
        messages[at] = ChatMessage(role, content)
        return messages

    honest = encoder.encode(talk("a b c")).token_ids
    ids = encoder.encode(talk(forged)).token_ids
    for token in special:
        token_id = tokenizer.special_tokens[token]
        assert ids.count(token_id) == honest.count(token_id), token
    assert forged in tokenizer.decode(ids, False)


def test_the_list_is_the_folder() -> None:
    from tests.helpers.chat_models import _FOLDER

    assert {path.stem for path in _FOLDER.glob("*.jinja")} == set(BY_NAME)
    assert set(EXPECTED) == set(BY_NAME)
