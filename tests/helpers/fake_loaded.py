"""An engine as the loader would hand it over, with the integer model inside and no torch."""

from __future__ import annotations

from collections.abc import Sequence

from engine.api.errors import EngineError
from engine.api.events import ModelInfo
from engine.api.params import ChatMessage, TurnTokens
from engine.model_loader import LoadedEngine, ModelLoader
from tests.helpers.engine_cases import CheckedEngine

INFO = ModelInfo(
    name="integers",
    path="",
    architecture="HashRunner",
    num_parameters=0,
    weights_bytes=0,
    kv_bytes_per_token=16,
    context_length=10_000,
    vocab_size=997,
    dtype="int",
    device="cpu",
    backend="fake",
    backend_reason="",
    num_blocks=64,
    block_size=8,
    fingerprint="fingerprint",
    has_chat_template=True,
)


class CharTokenizer:
    """One id a character."""

    def encode_text(self, text: str) -> list[int]:
        return [ord(char) % 997 for char in text]

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return "".join(chr(token) for token in ids)


class _Prompt:
    def __init__(self, token_ids: list[int], turn_start: int) -> None:
        self.token_ids, self.turn_start, self.reencoded_tokens = token_ids, turn_start, 0
        self.answer_start, self.answer_chars = len(token_ids), 0
        self.history_end = turn_start


class CharEncoder:
    """The contents of the messages, one after another; answered turns by their ids."""

    def encode(
        self,
        messages: Sequence[ChatMessage],
        *,
        continue_answer: bool = False,
        follows_cut: bool = False,
    ) -> _Prompt:
        ids: list[int] = []
        start = 0
        if continue_answer:
            turn = messages[-1].turn
            assert turn is not None
            prompt = _Prompt([*turn.prompt_ids, *turn.output_ids], 0)
            prompt.answer_start, prompt.answer_chars = len(turn.prompt_ids), turn.covered_chars
            return prompt
        for message in messages:
            if message.turn is not None:
                ids = [*ids[:start], *message.turn.prompt_ids, *message.turn.output_ids]
                start = len(ids)
            else:
                ids += CharTokenizer().encode_text(message.content)
        return _Prompt(ids, start)

    def usable_turn(self, message: ChatMessage) -> TurnTokens | None:
        return message.turn


def fake_engine(**config: object) -> LoadedEngine:
    """A fresh engine; its core is checked only when asked."""
    core = CheckedEngine(INFO.num_blocks, INFO.block_size, **config).core
    core.log.enabled = False
    return LoadedEngine(core, CharTokenizer(), CharEncoder(), INFO, 128, 0.0)  # type: ignore[arg-type]


def install_fake_loader(monkeypatch, gate=None, error: EngineError | None = None, **config) -> None:
    """Every LoadModel gives a fake engine, after ``gate`` (an Event) if there is one."""

    def load(loader: ModelLoader) -> LoadedEngine:
        loader._progress("weights", 0.5, "")
        while gate is not None and not gate.wait(0.01):
            loader._progress("weights", 0.5, "")
        if error is not None:
            raise error
        return fake_engine(**config)

    monkeypatch.setattr(ModelLoader, "_load", load)
