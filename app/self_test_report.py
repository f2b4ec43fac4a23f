"""What the self-test reports, and whether it is good enough. Qt-free."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from app.conversation import Message
from engine.api.params import TurnTokens

MAX_FIRST_PAINT_MS = 1000.0
MAX_LOAD_GAP_MS = 500.0
MAX_GAP_MS = 50.0
MAX_EXTRA_PREFILL = 31
"""Tokens that a later turn may prefill beside its own message: the template's and part of a block.
"""


@dataclass(slots=True)
class TabReport:
    prompt_tokens: int
    cached_tokens: int
    new_tokens: int
    ttft_ms: float
    tok_s: float
    text: str


@dataclass(slots=True)
class TurnReport:
    prompt_tokens: int
    cached_tokens: int


@dataclass(slots=True)
class PoolReport:
    num_blocks: int
    block_size: int
    used_max: int


@dataclass(slots=True)
class Report:
    """The JSON object of ``--self-test``: these keys in this order. None: not reached.

    ``first_paint_ms`` and ``first_answer_s``, when the first answer was whole, count from the start
    of the process.
    """

    ok: bool = False
    model: str | None = None
    device: str | None = None
    backend: str | None = None
    first_paint_ms: float | None = None
    load_s: float | None = None
    gui_load_gap_ms: float | None = None
    first_answer_s: float | None = None
    tabs: list[TabReport] = field(default_factory=list)
    second_turn: TurnReport | None = None
    fork: TurnReport | None = None
    shared_blocks_max: int = 0
    pool: PoolReport | None = None
    invariant_violations: int = 0
    gui_max_gap_ms: float | None = None
    screenshot: str | None = None

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def write(self, file: Path) -> None:
        """In place of what is there; the folder is made. Raises OSError."""
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.to_json() + "\n", encoding="utf-8")


def tab_report(answer: Message) -> TabReport:
    """The figures of a finished answer."""
    usage = answer.usage
    assert usage is not None
    return TabReport(
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.output_tokens,
        round(usage.ttft_s * 1000.0, 1),
        round(usage.tokens_per_s, 1),
        answer.content,
    )


def turn_report(answer: Message) -> TurnReport:
    """What a later turn took from the cache."""
    usage = answer.usage
    assert usage is not None
    return TurnReport(usage.prompt_tokens, usage.cached_tokens)


def shared_tokens(prompts: Sequence[Sequence[int]], index: int, block_size: int) -> int:
    """Tokens that prompt ``index`` shares with one sent before it, in whole blocks.

    The last token of a prompt is always computed, since its logits are needed.
    """
    prompt = prompts[index]
    common = max((_common_prefix(prompt, other) for other in prompts[:index]), default=0)
    return min(common, len(prompt) - 1) // block_size * block_size


def history_in_cache(turn: TurnTokens, block_size: int) -> int:
    """Tokens of a first turn that are in whole computed blocks: the last one was sampled, never
    fed.
    """
    return (len(turn.prompt_ids) + len(turn.output_ids) - 1) // block_size * block_size


def check_tabs(answers: Sequence[Message], block_size: int) -> list[str]:
    """What is wrong with the first turns; ``answers`` in the order in which they were asked for."""
    faults: list[str] = []
    prompts: list[tuple[int, ...]] = []
    for index, answer in enumerate(answers):
        where = f"tab {index + 1}"
        if answer.usage is None or answer.turn is None:
            faults.append(f"{where}: no answer ({answer.status.value})")
            prompts.append(())
            continue
        prompts.append(answer.turn.prompt_ids)
        if answer.usage.prompt_tokens != len(answer.turn.prompt_ids):
            faults.append(f"{where}: prompt of {answer.usage.prompt_tokens} tokens, but other ids")
        if not answer.content.strip():
            faults.append(f"{where}: empty answer")
        expected = shared_tokens(prompts, index, block_size)
        if index > 0 and answer.usage.cached_tokens != expected:
            faults.append(
                f"{where}: {answer.usage.cached_tokens} tokens from cache, expected {expected}"
            )
        if index > 0 and expected == 0:
            faults.append(f"{where}: shares no block with the tabs before it")
    return faults


def check_later_turn(
    where: str, answer: Message, before: TurnTokens | None, message_tokens: int, block_size: int
) -> list[str]:
    """What is wrong with a turn that follows ``before`` with a message of ``message_tokens``."""
    if answer.usage is None or before is None:
        return [f"{where}: no answer ({answer.status.value})"]
    faults: list[str] = []
    cached, prompt = answer.usage.cached_tokens, answer.usage.prompt_tokens
    history = history_in_cache(before, block_size)
    if cached < history:
        faults.append(f"{where}: {cached} tokens from cache, but {history} were computed before")
    if prompt - cached > message_tokens + MAX_EXTRA_PREFILL:
        faults.append(
            f"{where}: prefilled {prompt - cached} tokens for a message of {message_tokens}"
        )
    return faults


def check_figures(report: Report) -> list[str]:
    """What is wrong with the window's and the pool's figures."""
    faults: list[str] = []
    for name, limit in (
        ("first_paint_ms", MAX_FIRST_PAINT_MS),
        ("gui_load_gap_ms", MAX_LOAD_GAP_MS),
        ("gui_max_gap_ms", MAX_GAP_MS),
    ):
        value = getattr(report, name)
        if value is None or value >= limit:
            faults.append(f"{name} is {value}, the limit is {limit:g}")
    if report.invariant_violations:
        faults.append(f"{report.invariant_violations} violations of the pool's invariants")
    if report.shared_blocks_max == 0:
        faults.append("no block was ever shared")
    return faults


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    for position, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return position
    return min(len(first), len(second))
