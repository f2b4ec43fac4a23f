"""Chat formats of public models: minimal templates of our own that render plain chats as theirs do.

The templates are in ``chat_templates``; tools, images and retrieval are left out. What they write
was taken from the models' published templates as quoted in public repositories (llama.cpp's
test-chat-template.cpp, huggingface.js' jinja tests, the models' own pages); only the formats, which
are facts, not the text of those templates. The tokenizers are small ones with the models' control
tokens and their way to treat spaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from engine.chat_encoder import ChatEncoder
from engine.chat_template import ChatTemplate
from engine.tokenizer import Tokenizer
from tests.helpers.toy_tokenizer import AddedText, toy_tokenizer_json

_FOLDER = Path(__file__).parent / "chat_templates"


@dataclass(frozen=True)
class ChatModel:
    """One format.

    ``kind`` of tokenizer: see ``toy_tokenizer``. ``ends``: tokens that end an answer. ``swallows``:
    control tokens that take the white space after them. ``plain``: tokens that are added but are
    text. ``source``: a model that uses the format, and the licence of its files.

    How the template behaves: ``system`` (takes a system message), ``alternates`` (refuses two
    questions in a row), ``trims`` (strips answers), ``rewrites``: "" if a turn stays as it was,
    else what changes earlier turns.
    """

    name: str
    kind: str
    bos: str
    eos: str
    ends: tuple[str, ...]
    control: tuple[str, ...]
    source: str
    swallows: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    system: bool = True
    alternates: bool = False
    trims: bool = False
    rewrites: str = ""

    @property
    def template_source(self) -> str:
        return (_FOLDER / f"{self.name}.jinja").read_text(encoding="utf-8")

    @property
    def variables(self) -> dict[str, str]:
        named = {"bos_token": self.bos, "eos_token": self.eos}
        return {name: token for name, token in named.items() if token}

    def template(self) -> ChatTemplate:
        return ChatTemplate(self.template_source, self.variables)

    def tokenizer_json(self) -> str:
        special = dict.fromkeys((self.bos, self.eos, *self.ends, *self.control))
        added = [AddedText(token, token in self.swallows) for token in special if token]
        return toy_tokenizer_json(self.kind, added, self.plain)

    def tokenizer(self) -> Tokenizer:
        return _tokenizer(self)

    def encoder(self) -> ChatEncoder:
        """A fresh one, with nothing remembered."""
        return ChatEncoder(self.tokenizer(), self.template())

    def end_id(self) -> int:
        """The token that the model samples when it is done."""
        token_id = self.tokenizer().token_id(self.ends[0])
        assert token_id is not None
        return token_id


@cache
def _tokenizer(model: ChatModel) -> Tokenizer:
    text = model.tokenizer_json()
    ids = [Tokenizer(text, [], "").token_id(token) for token in model.ends]
    return Tokenizer(text, [i for i in ids if i is not None], model.name)


@cache
def reference(model: ChatModel) -> Any:
    """transformers over the same tokenizer and template."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(model.tokenizer_json()),
        bos_token=model.bos or None,
        eos_token=model.eos,
        chat_template=model.template_source,
    )


_HEADER = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_LLAMA3 = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>")
_TURN = ("<start_of_turn>", "<end_of_turn>")
_R1 = "<｜end▁of▁sentence｜>"

CHAT_MODELS = (
    ChatModel(
        "smollm2",
        "bytes",
        "<|im_start|>",
        "<|im_end|>",
        ("<|im_end|>",),
        _HEADER,
        "HuggingFaceTB/SmolLM2-135M-Instruct, Apache-2.0",
    ),
    ChatModel(
        "qwen2.5",
        "bytes",
        "",
        "<|im_end|>",
        ("<|im_end|>", "<|endoftext|>"),
        _HEADER,
        "Qwen/Qwen2.5-0.5B-Instruct, Apache-2.0",
    ),
    ChatModel(
        "qwen3",
        "bytes",
        "",
        "<|im_end|>",
        ("<|im_end|>", "<|endoftext|>"),
        _HEADER,
        "Qwen/Qwen3-0.6B, Apache-2.0",
        plain=("<think>", "</think>"),
        rewrites="reasoning",
    ),
    ChatModel(
        "llama2",
        "legacy",
        "<s>",
        "</s>",
        ("</s>",),
        (),
        "meta-llama/Llama-2-7b-chat-hf, Llama 2 Community Licence",
        alternates=True,
        trims=True,
    ),
    ChatModel(
        "llama3",
        "bytes",
        "<|begin_of_text|>",
        "<|eot_id|>",
        ("<|eot_id|>", "<|end_of_text|>"),
        _LLAMA3,
        "meta-llama/Meta-Llama-3-8B-Instruct, Llama 3 Community Licence",
        trims=True,
    ),
    ChatModel(
        "llama3.2",
        "bytes",
        "<|begin_of_text|>",
        "<|eot_id|>",
        ("<|eot_id|>", "<|end_of_text|>"),
        _LLAMA3,
        "meta-llama/Llama-3.2-1B-Instruct, Llama 3.2 Community Licence",
        trims=True,
    ),
    ChatModel(
        "mistral-v3",
        "first",
        "<s>",
        "</s>",
        ("</s>",),
        ("[INST]", "[/INST]"),
        "mistralai/Mistral-7B-Instruct-v0.3, Apache-2.0",
        alternates=True,
        trims=True,
        rewrites="system",
    ),
    ChatModel(
        "mistral-nemo",
        "bytes",
        "<s>",
        "</s>",
        ("</s>",),
        ("[INST]", "[/INST]"),
        "mistralai/Mistral-Nemo-Instruct-2407, Apache-2.0",
        alternates=True,
        rewrites="system",
    ),
    ChatModel(
        "gemma2",
        "spaces",
        "<bos>",
        "<eos>",
        ("<end_of_turn>", "<eos>"),
        _TURN,
        "google/gemma-2-2b-it, Gemma Terms of Use",
        system=False,
        alternates=True,
        trims=True,
    ),
    ChatModel(
        "gemma3",
        "spaces",
        "<bos>",
        "<eos>",
        ("<end_of_turn>", "<eos>"),
        _TURN,
        "google/gemma-3-1b-it, Gemma Terms of Use",
        alternates=True,
        trims=True,
    ),
    ChatModel(
        "phi3",
        "legacy",
        "<s>",
        "<|endoftext|>",
        ("<|end|>", "<|endoftext|>"),
        ("<|system|>", "<|user|>", "<|assistant|>"),
        "microsoft/Phi-3-mini-4k-instruct, MIT",
        swallows=("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
    ),
    ChatModel(
        "phi4",
        "bytes",
        "<|endoftext|>",
        "<|im_end|>",
        ("<|im_end|>",),
        ("<|im_start|>", "<|im_sep|>"),
        "microsoft/phi-4, MIT",
    ),
    ChatModel(
        "deepseek-r1-distill",
        "bytes",
        "<｜begin▁of▁sentence｜>",
        _R1,
        (_R1,),
        ("<｜User｜>", "<｜Assistant｜>"),
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B, MIT",
        plain=("<think>", "</think>"),
        rewrites="reasoning",
    ),
    ChatModel(
        "zephyr",
        "legacy",
        "<s>",
        "</s>",
        ("</s>",),
        (),
        "TinyLlama/TinyLlama-1.1B-Chat-v1.0, Apache-2.0",
    ),
    ChatModel(
        "command-r",
        "bytes",
        "<BOS_TOKEN>",
        "<|END_OF_TURN_TOKEN|>",
        ("<|END_OF_TURN_TOKEN|>",),
        ("<|START_OF_TURN_TOKEN|>", "<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"),
        "CohereForAI/c4ai-command-r-v01, CC-BY-NC-4.0",
        alternates=True,
        trims=True,
    ),
    ChatModel(
        "granite3",
        "bytes",
        "<|end_of_text|>",
        "<|end_of_text|>",
        ("<|end_of_text|>",),
        ("<|start_of_role|>", "<|end_of_role|>"),
        "ibm-granite/granite-3.0-2b-instruct, Apache-2.0",
    ),
)

BY_NAME = {model.name: model for model in CHAT_MODELS}
