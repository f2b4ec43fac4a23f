"""Clients that send at random from threads of their own, and what must hold of what they hear."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from engine.api.client import EngineClient
from engine.api.commands import (
    BlockText,
    Cancel,
    Command,
    CompareBackends,
    Continue,
    CountTokens,
    EditCost,
    Forecast,
    Fork,
    Inspect,
    LoadModel,
    Pause,
    PauseEngine,
    Pin,
    Resume,
    ResumeEngine,
    SetFocus,
    SetRate,
    StepEngine,
    Submit,
    SubscribePool,
    UnloadModel,
    Unpin,
    UnsubscribePool,
)
from engine.api.events import (
    EngineStatus,
    EngineStatusChanged,
    Event,
    ModelLoaded,
    ModelLoadFailed,
    ModelUnloaded,
    Reply,
    RequestEvent,
    RequestFinished,
)
from engine.api.params import ChatMessage, SamplingParams, TurnTokens

_PARAMS = SamplingParams(temperature=0.0, max_tokens=6, seed=0)
_LETTERS = "abcdefgh"


@dataclass
class Storm:
    """One client's share: what it has sent, and what it has heard."""

    name: str
    client: EngineClient
    rng: random.Random
    requests: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    _count: int = 0

    def rage(self, num_commands: int, loads: bool) -> None:
        """Sends random commands, now and then with a pause."""
        for _ in range(num_commands):
            self.client.send(self._draw(loads))
            if self.rng.random() < 0.3:
                time.sleep(self.rng.random() * 0.004)

    def start(self, num_commands: int, loads: bool = False) -> threading.Thread:
        thread = threading.Thread(target=self.rage, args=(num_commands, loads), daemon=True)
        thread.start()
        return thread

    def check(self) -> None:
        """Every request one end and nothing after it, every question one answer."""
        self.events.extend(self.client.poll_events())
        ends = Counter(e.request_id for e in self.events if isinstance(e, RequestFinished))
        replies = Counter(
            e.command_id
            for e in self.events
            if isinstance(e, Reply | ModelLoaded | ModelLoadFailed | ModelUnloaded)
        )
        for request_id in self.requests:
            # A fork that came to nothing is told by its command.
            assert ends[request_id] + replies[f"fork {request_id}"] == 1, (self.name, request_id)
        assert set(ends) <= set(self.requests), "the end of another's request"
        for query in self.queries:
            assert replies[query] == 1, (self.name, query, replies[query])
        over: set[str] = set()
        for event in self.events:
            if isinstance(event, RequestEvent):
                assert event.request_id not in over, f"{event} after its end"
                if isinstance(event, RequestFinished):
                    over.add(event.request_id)

    def has_heard(self, status: EngineStatus) -> bool:
        self.events.extend(self.client.poll_events())
        told = [event for event in self.events if isinstance(event, EngineStatusChanged)]
        return bool(told) and told[-1].status is status

    # --- drawing ---

    def long_request(self) -> Command:
        params = SamplingParams(temperature=0.0, max_tokens=300, seed=0)
        return Submit((self._request(),), self.name, (ChatMessage("user", "go on"),), params)

    def _draw(self, loads: bool) -> Command:
        draw = self.rng.random()
        if loads and draw < 0.06:
            return LoadModel("", command_id=self._query())
        if loads and draw < 0.08:
            return UnloadModel(command_id=self._query())
        if draw < 0.35:
            return self._submit()
        if draw < 0.65:
            return self._about_a_request()
        if draw < 0.9:
            return self._question()
        return self.rng.choice(
            (
                SetFocus(self._conversation()),
                SubscribePool(self.rng.choice((5.0, 500.0))),
                UnsubscribePool(),
                PauseEngine(),
                ResumeEngine(),
                ResumeEngine(),
                StepEngine(2),
                SetRate(self.rng.choice((None, 500.0))),
                Pin(self._conversation(), self._messages()),
                Unpin(self._conversation()),
            )
        )

    def _submit(self) -> Command:
        if self.rng.random() < 0.2:
            turn = TurnTokens((1, 2, 3), (4, 5), 2, "fingerprint")
            messages = (*self._messages(), ChatMessage("assistant", "so", turn))
            return Continue(self._request(), self._conversation(), messages, _PARAMS)
        ids = tuple(self._request() for _ in range(self.rng.choice((1, 1, 1, 3))))
        return Submit(ids, self._conversation(), self._messages(), _PARAMS)

    def _about_a_request(self) -> Command:
        request_id = self.rng.choice(self.requests[-6:] or ["none"])
        kind = self.rng.randrange(4)
        if kind == 0:
            child = self._request()
            return Fork(request_id, child, self._conversation(), command_id=f"fork {child}")
        if kind == 1:
            return Pause(request_id)
        return Cancel(request_id) if kind == 2 else Resume(request_id)

    def _question(self) -> Command:
        conversation, messages, query = self._conversation(), self._messages(), self._query()
        return self.rng.choice(
            (
                Forecast(conversation, messages, command_id=query),
                EditCost(conversation, messages, 0, command_id=query),
                CountTokens(messages[0].content, command_id=query),
                BlockText(self.rng.randrange(70), command_id=query),
                Inspect(conversation, command_id=query),
                CompareBackends(conversation, messages, "dense", command_id=query),
            )
        )

    def _request(self) -> str:
        self.requests.append(f"{self.name}-r{len(self.requests)}")
        return self.requests[-1]

    def _query(self) -> str:
        self._count += 1
        self.queries.append(f"{self.name}-q{self._count}")
        return self.queries[-1]

    def _conversation(self) -> str:
        return f"{self.name}-c{self.rng.randrange(4)}"

    def _messages(self) -> tuple[ChatMessage, ...]:
        letters = self.rng.choice(_LETTERS) * self.rng.choice((0, 5, 30, 200, 700))
        return (ChatMessage("user", letters),)
