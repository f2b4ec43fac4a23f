"""A tokenizer and a chat format for models that have neither: each word of ``prose`` is a token."""

from __future__ import annotations

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from engine.chat_encoder import ChatEncoder
from engine.chat_template import ChatTemplate
from engine.tokenizer import Tokenizer
from tests.benchmarks.prose import VOCABULARY

FINGERPRINT = "words"
_END = "<|im_end|>"
_CONTROL = ("<|endoftext|>", "<|im_start|>", _END)
_SPACE = "Ġ"
"""How a byte-level vocabulary spells the space before a word."""

_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def word_tokenizer(vocab_size: int) -> Tokenizer:
    """A byte-level tokenizer with as many tokens as the model: whatever it says is text."""
    tokens = [*_CONTROL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    for word in VOCABULARY.split():
        tokens += [_SPACE + word, word, word.capitalize(), _SPACE + word.capitalize()]
    tokens = list(dict.fromkeys(tokens))
    tokens += [f"{_SPACE}w{index}" for index in range(len(tokens), vocab_size)]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    # Without merges a piece of text is a token only if it is one as a whole.
    made = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(list(_CONTROL))
    return Tokenizer(made.to_str(), [vocabulary[_END]], FINGERPRINT, vocab_size)


def word_encoder(tokenizer: Tokenizer) -> ChatEncoder:
    """ChatML over it."""
    return ChatEncoder(tokenizer, ChatTemplate(_TEMPLATE))
