"""Chat templates that are chosen by name: what they write, for whom, and in a running engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.api.chat_templates import CHAT_TEMPLATES
from engine.api.errors import ChatTemplateError, InvalidValueError
from engine.api.events import TemplateNote
from engine.api.params import ChatMessage, EngineConfig
from engine.chat_encoder import ChatEncoder
from engine.chat_format import ChatFormat
from engine.chat_template import ChatTemplate
from engine.engine_builder import build_engine
from engine.known_templates import KNOWN_TEMPLATES, fitting, known_template
from engine.loading.progress import never_cancelled, no_progress
from engine.model_loader import LoadedEngine
from engine.tokenizer import Tokenizer
from tests.helpers.chat_models import BY_NAME, CHAT_MODELS, ChatModel
from tests.helpers.tiny_chat import answer, fed_so_far, system, user
from tests.helpers.tiny_gguf import TinyGguf

CONFIG = EngineConfig(num_blocks=16, device="cpu", dtype="float32", num_threads=1)
TALK = (
    user("How many bridges are there?"),
    ChatMessage("assistant", "There are seven bridges."),
    user("And in Köln? 你好"),
)


def variables_of(model: ChatModel) -> dict[str, str]:
    found = dict(model.variables)
    if "[INST]" in model.tokenizer().special_tokens:
        found["inst_is_token"] = "yes"
    return found


def known(name: str, model: ChatModel) -> ChatTemplate:
    """With the start token where the model's own template writes it."""
    template = known_template(name, model.tokenizer().special_tokens)
    starts = "bos_token" in model.template_source or model.bos in model.template_source
    return template.template(variables_of(model), starts=starts)


@pytest.mark.parametrize(
    ("name", "model", "messages"),
    [
        ("chatml", "smollm2", (system("Be brief."), *TALK)),
        ("chatml", "qwen2.5", (system("Be brief."), *TALK)),
        ("llama3", "llama3", (system("Be brief."), *TALK)),
        ("gemma", "gemma3", (system("Be brief."), *TALK)),
        ("gemma", "gemma2", TALK),
        ("mistral", "mistral-v3", TALK),
        ("phi", "phi3", (system("Be brief."), *TALK)),
        ("zephyr", "zephyr", (system("Be brief."), *TALK)),
    ],
)
def test_ids_are_those_of_the_formats_own_models(
    name: str, model: str, messages: tuple[ChatMessage, ...]
) -> None:
    own = BY_NAME[model]
    tokenizer = own.tokenizer()
    expected = ChatEncoder(tokenizer, own.template()).encode(messages).token_ids
    found = ChatEncoder(tokenizer, known(name, own)).encode(messages).token_ids
    assert found == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "mistral",
            "[INST] Be brief.\n\nHi [/INST] Hello</s>[INST] Go on [/INST]",
        ),
        (
            "alpaca",
            "Be brief.\n\n### Instruction:\nHi\n\n### Response:\nHello\n\n"
            "### Instruction:\nGo on\n\n### Response:\n",
        ),
        ("plain", "Be brief.\n\nUser: Hi\n\nAssistant: Hello\n\nUser: Go on\n\nAssistant:"),
        ("completion", "Be brief.\n\nHiHello\n\nGo on"),
    ],
)
def test_formats_that_are_text_are_written_so(name: str, text: str) -> None:
    said = [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "Go on")]
    messages = [{"role": role, "content": content} for role, content in said]
    template = KNOWN_TEMPLATES[name].template({}, starts=True)
    assert template.render(messages, add_generation_prompt=True) == text


def test_alpaca_has_words_of_its_own_where_there_is_no_system_prompt() -> None:
    template = KNOWN_TEMPLATES["alpaca"].template({}, starts=False)
    text = template.render([{"role": "user", "content": "Hi"}], add_generation_prompt=True)
    assert text.startswith("Below is an instruction that describes a task. Write a response that")
    assert text.endswith("request.\n\n### Instruction:\nHi\n\n### Response:\n")


def test_every_name_has_a_template() -> None:
    assert tuple(KNOWN_TEMPLATES) == CHAT_TEMPLATES
    for template in KNOWN_TEMPLATES.values():
        assert {*template.ends} <= {*template.needs}


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("smollm2", ("chatml",)),
        ("llama3", ("llama3",)),
        ("gemma3", ("gemma",)),
        ("mistral-v3", ("mistral", "zephyr")),
        ("phi3", ("phi",)),
        ("granite3", ()),
    ],
)
def test_only_formats_whose_control_tokens_are_there_are_offered(
    model: str, names: tuple[str, ...]
) -> None:
    found = fitting(BY_NAME[model].tokenizer().special_tokens)
    assert found == (*names, "alpaca", "plain", "completion")


def fits(name: str) -> list[ChatModel]:
    return [m for m in CHAT_MODELS if name in fitting(m.tokenizer().special_tokens)][:2]


@pytest.mark.parametrize("name", CHAT_TEMPLATES)
def test_a_turn_begins_with_all_turns_before(name: str) -> None:
    assert fits(name)
    for model in fits(name):
        tokenizer = model.tokenizer().with_ends(KNOWN_TEMPLATES[name].ends, name)
        encoder = ChatEncoder(tokenizer, known(name, model))
        messages = [system("Be brief."), user("Hi")]
        sampled = tokenizer.encode_text("Hello there")
        messages.append(answer(encoder.encode(messages), sampled, tokenizer))
        messages.append(user("And you?"))
        second = encoder.encode(messages)
        assert second.token_ids[: second.turn_start] == fed_so_far(messages)
        assert second.reencoded_tokens == 0


def test_the_start_token_stands_before_all_unless_the_format_has_its_own() -> None:
    template = KNOWN_TEMPLATES["chatml"].template
    messages = [{"role": "user", "content": "Hi"}]

    def begins(bos: str, starts: bool = True) -> str:
        made = template({"bos_token": bos}, starts=starts)
        return made.render(messages, add_generation_prompt=False)[:12]

    assert begins("<s>") == "<s><|im_star"
    assert begins("<|im_start|>") == begins("<s>", starts=False) == "<|im_start|>"


def test_a_template_without_its_control_tokens_is_refused_with_those_that_fit() -> None:
    with pytest.raises(ChatTemplateError, match=r"gemma is made of.*<start_of_turn>, <end_of") as e:
        known_template("gemma", BY_NAME["phi3"].tokenizer().special_tokens)
    assert "phi, alpaca, plain, completion" in e.value.action


def test_a_name_that_nobody_knows_is_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"chat_template = 'vicuna'.*chatml, llama3"):
        EngineConfig(chat_template="vicuna")


# --- in a model that is loaded --------------------------------------------------------------------


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., LoadedEngine]:
    """Loads a tiny model, with the template of its file and with one that was chosen."""

    def loaded(own: str | None, chosen: str = "") -> LoadedEngine:
        path = TinyGguf(extra={"tokenizer.chat_template": own}).write(tmp_path / "tiny.gguf")
        config = replace(CONFIG, chat_template=chosen)
        return build_engine(path, tmp_path, config, no_progress, never_cancelled)

    return loaded


def test_a_model_without_a_template_is_talked_to_in_the_one_that_was_chosen(
    load: Callable[..., LoadedEngine],
) -> None:
    before, after = load(None), load(None, "chatml")
    assert before.info.chat_template_choices == after.info.chat_template_choices
    assert before.info.chat_template_choices == ("chatml", "alpaca", "plain", "completion")
    assert (before.info.chat_template, after.info.chat_template) == ("", "chatml")
    assert (before.info.template_note, after.info.template_note) == (
        TemplateNote.ABSENT,
        TemplateNote.NONE,
    )
    assert not before.info.has_chat_template
    assert not after.info.has_chat_template
    ids = after.encoder.encode([user("Hi")]).token_ids
    text = after.tokenizer.decode(ids, False)
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert before.info.fingerprint != after.info.fingerprint


def test_a_chosen_template_takes_the_place_of_one_that_is_damaged(
    load: Callable[..., LoadedEngine],
) -> None:
    damaged = "{% for m in messages %}\n{{ m.content }\n{% endfor %}"
    with pytest.raises(ChatTemplateError, match="damaged in line 2"):
        load(damaged)
    info = load(damaged, "plain").info
    assert (info.chat_template, info.has_chat_template) == ("plain", True)


@pytest.mark.parametrize(("chosen", "shown"), [("plain", " Hi"), ("completion", " Hi\nUser: x")])
def test_the_stop_strings_are_those_of_the_template(
    chosen: str, shown: str, load: Callable[..., LoadedEngine]
) -> None:
    engine = load("{{ messages[0].content }}", chosen)
    stream = engine.core._ledger._make_stream(("never",))
    assert stream.feed(engine.tokenizer.encode_text(" Hi\nUser: x")).text == shown


def test_tokens_that_end_an_answer_in_the_template_end_it(tmp_path: Path) -> None:
    model = BY_NAME["gemma3"]
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<bos>"}')
    # As in a base model's file: nothing says that <end_of_turn> ends an answer.
    base = Tokenizer(model.tokenizer_json(), [], "base")
    turn_end = base.special_tokens["<end_of_turn>"]
    plain = ChatFormat.from_folder(tmp_path, base)
    chosen = ChatFormat.from_folder(tmp_path, base, "gemma")
    assert (plain.name, chosen.name) == ("", "gemma")
    assert turn_end not in plain.tokenizer.eos_token_ids
    assert turn_end in chosen.tokenizer.eos_token_ids
    assert chosen.template.source.startswith("{{ bos_token }}")
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<bos>","add_bos_token":false}')
    assert "bos_token" not in ChatFormat.from_folder(tmp_path, base).template.source
