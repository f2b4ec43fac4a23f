"""A client of the engine thread that keeps what it was told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from engine.api.client import EngineClient, start_engine
from engine.api.commands import Command, Submit
from engine.api.events import Event, TokensGenerated
from engine.api.params import ChatMessage, SamplingParams


class Talk:
    """A client with its events collected."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self.events: list[Event] = []

    def send(self, *commands: Command) -> None:
        for command in commands:
            self.client.send(command)

    def until(self, kind: type[Event], timeout_s: float = 10.0, **fields: object) -> Event:
        """Waits for an event of this kind with these fields."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.events.extend(self.client.poll_events())
            for event in self.events:
                if isinstance(event, kind) and all(
                    getattr(event, name) == value for name, value in fields.items()
                ):
                    return event
            time.sleep(0.002)
        raise AssertionError(f"no {kind.__name__} {fields} among {self.events}")

    def text(self, request_id: str) -> list[int]:
        return [
            token
            for event in self.events
            if isinstance(event, TokensGenerated) and event.request_id == request_id
            for token in event.token_ids
        ]

    def ask(self, query: Command, timeout_s: float = 30.0) -> Event:
        """Sends a query and waits for its one reply."""
        self.send(query)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self.events.extend(self.client.poll_events())
            replies = [e for e in self.events if getattr(e, "command_id", "") == query.command_id]
            if replies:
                assert len(replies) == 1, replies
                return replies[0]
            time.sleep(0.002)
        raise AssertionError(f"no reply to {query}")


@contextmanager
def talk_with_engine(patience_s: float = 5.0) -> Iterator[Talk]:
    """The owner of a new engine thread, which must end within ``patience_s`` at the end."""
    client = start_engine()
    yield Talk(client)
    assert client.close(patience_s), "the engine thread did not end"


def submit(name: str, text: str = "hello engine", max_tokens: int = 4, **kw: str) -> Submit:
    """A greedy request of one message in a conversation of its own."""
    params = SamplingParams(temperature=0.0, max_tokens=max_tokens, seed=0)
    return Submit((name,), f"c-{name}", (ChatMessage("user", text),), params, **kw)
