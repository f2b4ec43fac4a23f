"""W2 "tabs": conversations with one system prompt at once, and a long paste into one of them.

Through the engine thread and its client, as the window has it; all times are the client's.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.api.commands import SetFocus, Submit
from engine.api.events import Event, FinishReason, RequestFinished, RequestUsage, TokensGenerated
from engine.api.params import ChatMessage, SamplingParams
from tests.benchmarks import prose, tab_figures
from tests.benchmarks.desk import Desk, open_desk
from tests.benchmarks.gap_story import StepJournal
from tests.benchmarks.options import Options
from tests.benchmarks.report import Row, emit, median_of, print_table

THINK_S = 0.5
"""From the end of an answer to the next message of its conversation."""

QUIET_TOKENS = 8
"""Tokens of each other conversation without any prefill that come before the paste."""

_IDLE_WAIT_S = 0.05
_STALLED_S = 120.0
_SMALL_BLOCKS = 512
_RUNS = itertools.count()


@dataclass(frozen=True, slots=True)
class Scenario:
    """One cell of the grid. Lengths in tokens; ``paste`` replaces the message of a middle turn."""

    tabs: int
    system: int
    turns: int
    paste: int
    message: tuple[int, int] = (40, 200)
    answer: tuple[int, int] = (100, 400)
    stagger_s: float = 2.0

    @property
    def paste_turn(self) -> int:
        return self.turns // 2


@dataclass(slots=True)
class Answer:
    """What the client saw of one answer, in seconds of its clock."""

    tab: int
    turn: int
    is_paste: bool
    sent_s: float
    first_text_s: float = 0.0
    token_s: list[float] = field(default_factory=list)
    prompt_ids: tuple[int, ...] = ()
    shareable_tokens: int = 0
    usage: RequestUsage = field(default_factory=RequestUsage)


@dataclass(slots=True)
class _Tab:
    messages: list[ChatMessage]
    plan: list[tuple[str, int]]
    due_s: float
    turn: int = 0
    history_tokens: int = 0
    text: list[str] = field(default_factory=list)
    answer: Answer | None = None


def measure(options: Options) -> Row:
    """Every cell, ``repeats`` runs each; medians of the runs."""
    scenarios = _scenarios(options)
    model = options.model_or("random:tiny" if options.small else "", "random:qwen3-0.6b")
    repeats = options.repeats or (1 if options.small else 3)
    rows = []
    # The tiny model's pool would be huge, and a huge pool has costs of its own.
    settings = {"num_blocks": _SMALL_BLOCKS} if options.small else {}
    with open_desk(options, model, **settings) as desk:
        for scenario in scenarios:
            runs = [_run(desk, scenario, run) for run in range(repeats)]
            rows.append(median_of(runs) | {"run": "median"})
        info = desk.info
    print_table(rows, tab_figures.COLUMNS)
    facts = {"model": info.name, "device": info.device, "backend": info.backend}
    return {"workload": "W2", **facts, "runs": repeats, "rows": rows}


def _scenarios(options: Options) -> list[Scenario]:
    if options.small:
        return [Scenario(3, 60, 2, 200, message=(8, 20), answer=(24, 40), stagger_s=0.05)]
    tabs = options.tabs or ((1, 2, 4, 8) if options.on_gpu else (4, 8))
    systems = options.system or ((60, 200, 1000, 4000) if options.on_gpu else (200, 1000))
    turns, paste = (6, 8000) if options.on_gpu else (3, 3000)
    return [Scenario(n, size, turns, paste) for n in tabs for size in systems]


def _run(desk: Desk, scenario: Scenario, run: int) -> Row:
    """One run; its texts are new, so that nothing of an earlier one is in the cache.

    Prints its figures, and what the engine did in the longest gap that the paste made.
    """
    number = next(_RUNS)
    draw = random.Random(number)
    tabs = _tabs(scenario, desk.count_tokens, draw)
    desk.peak_used_blocks = 0
    with StepJournal() as journal:
        answers = _Play(desk, scenario, tabs, f"w2-{number}").play()
    figures = tab_figures.figures(
        answers, desk.info.block_size, desk.info.device.startswith("cuda")
    )
    cell = {
        "workload": "W2",
        "run": run,
        "tabs": scenario.tabs,
        "system": scenario.system,
        "turns": scenario.turns,
        "paste": scenario.paste,
    }
    gap = tab_figures.longest_paste_gap(answers)
    if gap is not None:
        emit({**cell, "longest_gap": journal.story(*gap)})
    return emit(
        {
            **cell,
            **figures,
            "pool_peak_blocks": desk.peak_used_blocks,
            "pool_blocks": desk.info.num_blocks,
        }
    )


def _tabs(scenario: Scenario, count: Callable[[str], int], draw: random.Random) -> list[_Tab]:
    system = ChatMessage("system", prose.write(scenario.system, count, draw))
    tabs = []
    for index in range(scenario.tabs):
        plan = []
        for turn in range(scenario.turns):
            pastes = index == 0 and turn == scenario.paste_turn
            length = scenario.paste if pastes else draw.randint(*scenario.message)
            plan.append((prose.write(length, count, draw), draw.randint(*scenario.answer)))
        due = scenario.stagger_s * index / max(scenario.tabs - 1, 1)
        tabs.append(_Tab([system], plan, due))
    return tabs


class _Play:
    """Plays one run: sends each message when it is due and notes what comes back."""

    def __init__(self, desk: Desk, scenario: Scenario, tabs: list[_Tab], name: str) -> None:
        self._desk = desk
        self._scenario = scenario
        self._tabs = tabs
        self._name = name
        self._answers: list[Answer] = []
        self._quiet_since_s = 0.0

    def play(self) -> list[Answer]:
        """All answers, in the order of their questions."""
        start = self._last_event_s = time.perf_counter()
        for tab in self._tabs:
            tab.due_s += start
        while any(tab.answer or tab.turn < self._scenario.turns for tab in self._tabs):
            now = time.perf_counter()
            for index, tab in enumerate(self._tabs):
                if self._is_due(index, tab, now):
                    self._ask(index, tab)
            arrived_s, events = self._desk.poll(_IDLE_WAIT_S)
            for event in events:
                self._take(event, arrived_s)
            if arrived_s - self._last_event_s > _STALLED_S:
                raise RuntimeError(f"nothing came for {_STALLED_S:.0f} s")
        return self._answers

    def _is_due(self, index: int, tab: _Tab, now: float) -> bool:
        if tab.answer is not None or tab.turn >= self._scenario.turns or now < tab.due_s:
            return False
        pastes = index == 0 and tab.turn == self._scenario.paste_turn
        return not pastes or self._all_others_stream(tab)

    def _all_others_stream(self, tab: _Tab) -> bool:
        """All others are in an answer and were undisturbed for a while, or one is at its end."""
        others = [other for other in self._tabs if other is not tab]
        if any(other.answer is None and other.turn >= self._scenario.turns for other in others):
            return True
        return all(
            other.answer is not None
            and sum(moment > self._quiet_since_s for moment in other.answer.token_s) > QUIET_TOKENS
            for other in others
        )

    def _someone_waits(self) -> bool:
        return any(tab.answer is not None and not tab.answer.token_s for tab in self._tabs)

    def _ask(self, index: int, tab: _Tab) -> None:
        text, length = tab.plan[tab.turn]
        tab.messages.append(ChatMessage("user", text))
        params = SamplingParams(max_tokens=length, ignore_eos=True, seed=len(self._answers))
        # Whoever sends a message looks at that conversation.
        conversation_id = f"{self._name}-{index}"
        self._desk.send(SetFocus(conversation_id))
        is_paste = index == 0 and tab.turn == self._scenario.paste_turn
        sent_s = time.perf_counter()
        request_id = f"{conversation_id}-{tab.turn}"
        self._desk.send(Submit((request_id,), conversation_id, tuple(tab.messages), params))
        tab.answer = Answer(index, tab.turn, is_paste, sent_s)
        self._answers.append(tab.answer)
        tab.text.clear()
        self._quiet_since_s = float("inf")

    def _take(self, event: Event, now: float) -> None:
        if not isinstance(event, TokensGenerated | RequestFinished):
            return
        self._last_event_s = now
        tab = self._tabs[int(event.conversation_id.rsplit("-", 1)[1])]
        answer = tab.answer
        assert answer is not None
        tab.text.append(event.text)
        if event.text and not answer.first_text_s:
            answer.first_text_s = now
        if isinstance(event, TokensGenerated):
            answer.token_s.append(now)
            if len(answer.token_s) == 1 and not self._someone_waits():
                self._quiet_since_s = now
        else:
            self._end(tab, answer, event, now)

    def _end(self, tab: _Tab, answer: Answer, event: RequestFinished, now: float) -> None:
        _, wanted = tab.plan[tab.turn]
        if event.reason is not FinishReason.LENGTH or event.usage.output_tokens != wanted:
            raise RuntimeError(
                f"an answer of {wanted} tokens ended as {event.reason} after "
                f"{event.usage.output_tokens}: {event.error}"
            )
        assert event.turn is not None
        answer.usage, answer.prompt_ids = event.usage, event.turn.prompt_ids
        # The last token was sampled, never fed: it has no keys and values.
        size = self._desk.info.block_size
        answer.shareable_tokens = max(tab.history_tokens - 1, 0) // size * size
        tab.history_tokens = event.usage.prompt_tokens + event.usage.output_tokens
        tab.messages.append(ChatMessage("assistant", "".join(tab.text), event.turn))
        tab.answer = None
        tab.turn += 1
        tab.due_s = now + THINK_S
