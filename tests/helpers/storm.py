"""Whatever people may do while an engine runs, with everything checked after every operation.

A storm is driven by operations of small numbers, so that any sequence of them means something: one
found at random can be cut down and played again.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from engine.api.errors import PromptExceedsPoolError, PromptTooLongError, UnknownIdError
from engine.api.events import (
    FinishReason,
    RequestEvent,
    RequestFinished,
    RequestTruncated,
    TokensGenerated,
)
from engine.api.params import SamplingParams
from engine.block_hash import root_hash
from engine.request import PLACEHOLDER_TOKEN
from tests.helpers.pieces import visible_text
from tests.helpers.pool_fold import PoolFold
from tests.helpers.storm_setup import END_IDS, Asked, Operation, Setup, Subject

CONVERSATIONS = ("x", "y", "z")


class Storm:
    """Does operations and checks. ``num_operations``: commands and engine steps so far."""

    def __init__(self, setup: Setup, subject: Subject) -> None:
        self.setup, self.subject, self.core = setup, subject, subject.core
        self.core.log.enabled = True
        self.fold = PoolFold(setup.num_blocks)
        self.num_operations = 0
        self.asked: dict[str, Asked] = {}
        self.histories: list[tuple[int, ...]] = [(3,) * 20]
        self.tokens: dict[str, list[int]] = {}
        self.texts: dict[str, str] = {}
        self.done: dict[str, RequestFinished] = {}
        self.num_failures = 0
        self.spoilt: set[str] = set()
        self.most_pinned = 0
        self.seen: Counter[str] = Counter()
        self.surprises: list[Exception] = []
        self._watch("_fail_step")
        self._watch("_begin_anew")

    def act(self, operation: Operation) -> None:
        """One operation, and all checks after it."""
        getattr(self, f"_{operation.kind}")(operation.a, operation.b, operation.c)
        self._settle()

    # --- operations ---

    def _submit(self, a: int, b: int, c: int) -> None:
        draw = random.Random(a * 1_000_000 + b * 1000 + c)
        history = self.histories[-1 - a % min(len(self.histories), 12)]
        cut = len(history) if b % 3 else b % (len(history) + 1)
        ids = [*history[:cut], *self._fresh(draw)]
        answer_start = draw.randint(1, len(ids)) if draw.random() < 0.15 else len(ids)
        params = self.subject.params(draw, 1 + c % 30)
        conversation = draw.choice((*CONVERSATIONS, ""))
        first = self._ask(ids, answer_start, params, conversation, "")
        if first and answer_start == len(ids):
            for _ in range(draw.choice((0, 0, 0, 1, 3))):
                self._ask(ids, answer_start, params, conversation, first)

    def _fresh(self, draw: random.Random) -> list[int]:
        if draw.random() < 0.3:
            return [draw.randrange(3)] * draw.randint(1, 25)
        return [draw.randrange(self.subject.vocab_size) for _ in range(draw.randint(1, 25))]

    def _ask(
        self, ids: list[int], start: int, params: SamplingParams, conversation: str, sibling: str
    ) -> str:
        name = f"r{len(self.asked)}"
        self.num_operations += 1
        try:
            self.core.add_request(
                name,
                ids,
                params,
                conversation_id=conversation,
                answer_start=None if start == len(ids) else start,
                sibling=sibling,
            )
        except (PromptTooLongError, PromptExceedsPoolError):
            size, pool = self.setup.block_size, self.core.pool
            room = (pool.num_blocks - pool.num_pinned) * size
            assert len(ids) >= min(self.setup.context_length, room)
            return ""
        self.asked[name] = Asked(tuple(ids), start, params)
        return name

    def _step(self, a: int, b: int, c: int) -> None:
        for _ in range(1 + a % 6):
            self.num_operations += 1
            self._take(self.core.step())
            self._check()

    def _live(self, pick: int) -> str | None:
        live = list(self.core.requests)
        return live[pick % len(live)] if live else None

    def _cancel(self, a: int, b: int, c: int) -> None:
        name = self._live(a)
        if name is not None:
            self.num_operations += 1
            assert self.core.cancel(name)

    def _fork(self, a: int, b: int, c: int) -> None:
        parent = self._live(a)
        if parent is None:
            return
        self.num_operations += 1
        child, asked = f"r{len(self.asked)}", self.asked[parent]
        reseeds = b % 2 == 1 and not asked.params.stop
        seed = b if reseeds else asked.params.seed
        try:
            self.core.fork(parent, child, (*CONVERSATIONS, child)[c % 4], seed)
        except UnknownIdError:
            # The step that was in flight has ended it.
            self._settle()
            assert parent in self.done
            return
        self._settle()
        if not reseeds:
            ids = asked.ids
            self.asked[child] = asked
            self.tokens[child] = list(self.tokens.get(parent, []))
            self.texts[child] = self.texts.get(parent, "")
            assert tuple(self.core.requests[child].token_ids) == (*ids, *self.tokens[child])
            return
        said = self.tokens.get(parent, [])
        left = asked.params.max_tokens - len(said)
        self.asked[child] = Asked(
            (*asked.ids, *said),
            asked.answer_start,
            replace(asked.params, seed=seed, max_tokens=left),
            said_ids=(*asked.said_ids, *said),
            said=asked.said + self.texts.get(parent, ""),
        )

    def _pause(self, a: int, b: int, c: int) -> None:
        name = self._live(a)
        if name is not None:
            self.num_operations += 1
            self.core.pause(name)

    def _resume(self, a: int, b: int, c: int) -> None:
        paused = [name for name, request in self.core.requests.items() if request.paused]
        if paused:
            self.num_operations += 1
            self.core.resume(paused[a % len(paused)])

    def _focus(self, a: int, b: int, c: int) -> None:
        self.num_operations += 1
        self.core.scheduler.focus = (*CONVERSATIONS, "")[a % 4]

    def _pin(self, a: int, b: int, c: int) -> None:
        self.num_operations += 1
        history = self.histories[b % len(self.histories)]
        self.core.pins.pin(CONVERSATIONS[a % 3], history[: (1 + c % 4) * self.setup.block_size])

    def _unpin(self, a: int, b: int, c: int) -> None:
        self.num_operations += 1
        self.core.pins.unpin(CONVERSATIONS[a % 3])

    def _truncate(self, a: int, b: int, c: int) -> None:
        name = self._live(a)
        if name is None or self.asked[name].said_ids:
            return
        self.num_operations += 1
        request, given = self.core.requests[name], len(self.asked[name].ids)
        known = sum(token != PLACEHOLDER_TOKEN for token in request.token_ids)
        try:
            self.core.truncate(name, given + b % (known - given + 1))
        except UnknownIdError:
            self._settle()
            assert name in self.done

    def _restart(self, a: int, b: int, c: int) -> None:
        """As when the attention backend changes: all KV is void."""
        self.num_operations += 1
        root = root_hash("storm", str(a))
        caching = self.core.config.prefix_caching
        self.core.restart_cache(root, prefix_caching=caching, change=self.subject.void_cache)

    def _configure(self, a: int, b: int, c: int) -> None:
        self.num_operations += 1
        budget, running = (1, 4, 64, 512)[a % 4], (1, 2, 8)[b % 3]
        self.core.configure(
            replace(self.core.config, token_budget=budget, max_running_requests=running)
        )

    def _fail(self, a: int, b: int, c: int) -> None:
        """The next step breaks off, while it is submitted or at its result."""
        self.num_operations += 1
        self.num_failures += 1
        where = ("fail_next_submit", "fail_next_result")[a % 2]
        errors = (MemoryError("planted"), OSError("planted"), RuntimeError("planted"))
        setattr(self.subject.runner, where, errors[b % 3])

    def _spoil(self, a: int, b: int, c: int) -> None:
        """One request's logits are not numbers any more."""
        name = self._live(a)
        if name is not None:
            self.num_operations += 1
            self.spoilt.add(name)
            self.subject.runner.bad_requests.add(name)

    def _shrink_memory(self, a: int, b: int, c: int) -> None:
        """Steps of many tokens run out of memory, for some time."""
        self.num_operations += 1
        limit = max(self.setup.block_size, 8) if a % 2 else 10_000
        self.subject.runner.breaks = lambda output: (
            MemoryError("planted") if output.num_tokens > limit else None
        )

    # --- what is checked ---

    def _watch(self, name: str) -> None:
        """The engine survives faults of its own too; here they are told from planted ones."""
        original = getattr(self.core._loop, name)

        def recover(*args: Any) -> None:
            if "planted" not in str(args[-1]):
                self.surprises.append(args[-1])
            original(*args)

        setattr(self.core._loop, name, recover)

    def _settle(self) -> None:
        self._take(self.core.take_events())
        self._check()

    def _check(self) -> None:
        for surprise in self.surprises:
            raise surprise
        assert self.core.violations() == []
        self.fold.apply(self.core.log.drain())
        self.fold.check(self.core.pool, self.core.live_tables())
        self.most_pinned = max(self.most_pinned, self.core.pool.num_pinned)

    def _take(self, events: list[RequestEvent]) -> None:
        for event in events:
            name = event.request_id
            assert name not in self.done, f"{event} after the end of {name}"
            self.seen[type(event).__name__] += 1
            if isinstance(event, TokensGenerated):
                self.tokens.setdefault(name, []).extend(event.token_ids)
                self.texts[name] = self.texts.get(name, "") + event.text
            elif isinstance(event, RequestFinished):
                self.texts[name] = self.texts.get(name, "") + event.text
                self.done[name] = event
                self._judge(name, event)
                self.histories.append((*event.turn.prompt_ids, *event.turn.output_ids))
            elif isinstance(event, RequestTruncated):
                self.tokens[name] = self.tokens.get(name, [])[: event.output_tokens]
                self.texts[name] = self.texts.get(name, "")[: event.num_chars]
                whole = (*self.asked[name].ids, *self.tokens[name])
                assert len(whole) == event.num_tokens

    def _judge(self, name: str, done: RequestFinished) -> None:
        """One request's answer against what it gives alone."""
        asked, tokens = self.asked[name], self.tokens.get(name, [])
        expected = self.subject.expected(asked)
        whole, size = tuple(tokens), self.setup.block_size
        self.seen[f"{done.reason}{done.limit}"] += 1
        assert whole == expected.ids[: len(whole)], f"{name}: {whole} instead of {expected}"
        assert done.usage.output_tokens == len(asked.said_ids) + len(tokens)
        kept = (*asked.given, *whole)
        assert done.turn.output_ids == kept[: len(done.turn.output_ids)]
        if done.reason is FinishReason.STOP or done.limit in ("max_tokens", "context"):
            assert (done.reason, done.limit) == (expected.reason, expected.limit)
            assert whole == expected.ids
            assert asked.said + self.texts[name] == self._text(asked, expected.ids)
        if not (done.reason is FinishReason.STOP and done.stop):
            assert done.turn.output_ids == kept
        if done.limit == "pool":
            room = (self.core.pool.num_blocks - self.most_pinned - 1) * size
            assert len(asked.ids) + len(whole) + 1 > room, f"{name} had room in the pool"
        if done.reason is FinishReason.ERROR and done.error.code == PromptExceedsPoolError.code:
            assert self.most_pinned
            assert not tokens
        elif done.reason is FinishReason.ERROR:
            assert name in self.spoilt or self.num_failures > 0, f"{name}: {done.error}"
            self.num_failures -= name not in self.spoilt

    def _text(self, asked: Asked, ids: tuple[int, ...]) -> str:
        ends = ids[-1] in END_IDS and not asked.params.ignore_eos
        shown = (*asked.said_ids, *(ids[:-1] if ends else ids))
        before = asked.given[: len(asked.given) - len(asked.said_ids)]
        return visible_text(shown, asked.params.stop, before)[0]

    # --- the end ---

    def finish(self) -> None:
        """Whatever was stopped goes on and nothing more is put in its way: all requests end."""
        for name, request in list(self.core.requests.items()):
            if request.paused:
                self.core.resume(name)
        for name in CONVERSATIONS:
            self.core.pins.unpin(name)
        runner = self.subject.runner
        runner.fail_next_submit = runner.fail_next_result = None
        runner.breaks = lambda output: None
        self._settle()
        limit, num_idle = self._most_steps(), 0
        while self.core.has_work:
            limit -= 1
            assert limit > 0, f"no end in sight for {list(self.core.requests)}"
            self._step(0, 0, 0)
            # A step may only end one that has outgrown the pool, and compute nothing.
            num_idle = num_idle + 1 if self.core.is_stuck else 0
            assert num_idle < 2, f"stuck: {list(self.core.requests)}"
        assert set(self.done) == set(self.asked)
        pool = self.core.pool
        assert (pool.num_used, pool.num_shared, pool.num_pinned) == (0, 0, 0)
        assert pool.num_free + pool.num_cached == pool.num_blocks
        assert self.subject.is_idle()
        self.fold.rewind()

    def _most_steps(self) -> int:
        """Each request computed alone, and twice again because of preemptions, token by token."""
        tokens = sum(
            request.num_tokens + request.params.max_tokens
            for request in self.core.requests.values()
        )
        return 100 + 4 * tokens
