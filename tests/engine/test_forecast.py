"""A forecast names whose cached blocks a message would cost, and they are the ones that go."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.api.client import start_engine
from engine.api.commands import Forecast, LoadModel
from engine.api.events import ForecastReady, ModelLoaded, RequestFinished
from engine.api.params import ChatMessage
from tests.helpers.fake_loaded import install_fake_loader
from tests.helpers.talk import Talk, submit

# Blocks of 8 ids, one a character, in a pool of 64.
OLD, NEW, ASKED = "a" * 200, "b" * 200, "c" * 200


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Talk]:
    install_fake_loader(monkeypatch)
    client = start_engine()
    talk = Talk(client)
    talk.send(LoadModel(models_dir=""))
    talk.until(ModelLoaded)
    yield talk
    assert client.close(5.0)


def answer(talk: Talk, name: str, text: str) -> RequestFinished:
    talk.send(submit(name, text, max_tokens=1))
    finished = talk.until(RequestFinished, request_id=name)
    assert isinstance(finished, RequestFinished)
    return finished


def forecast(talk: Talk, text: str, command_id: str) -> ForecastReady:
    message = (ChatMessage("user", text),)
    reply = talk.ask(Forecast("c", message, max_tokens=1, command_id=command_id))
    assert isinstance(reply, ForecastReady)
    return reply


def test_nothing_is_evicted_while_blocks_are_free(talk: Talk) -> None:
    answer(talk, "old", OLD)
    reply = forecast(talk, ASKED, "f")
    assert (reply.blocks_evicted, reply.evicted_conversation_ids) == (0, ())


def test_the_least_recently_used_goes_and_is_named(talk: Talk) -> None:
    answer(talk, "old", OLD)
    answer(talk, "new", NEW)
    reply = forecast(talk, ASKED, "f")
    assert reply.blocks_evicted > 0
    assert reply.evicted_conversation_ids == ("c-old",)
    answer(talk, "asked", ASKED)
    # Of the one that was named something is gone, of the other nothing.
    assert answer(talk, "new again", NEW).usage.cached_tokens == 192
    assert answer(talk, "old again", OLD).usage.cached_tokens < 192


def test_a_long_message_costs_both_in_their_order(talk: Talk) -> None:
    answer(talk, "old", OLD)
    answer(talk, "new", NEW)
    reply = forecast(talk, "d" * 400, "f")
    assert reply.evicted_conversation_ids == ("c-old", "c-new")
    assert len(set(reply.evicted_block_ids)) == reply.blocks_evicted


def test_what_the_message_itself_begins_with_is_spared(talk: Talk) -> None:
    answer(talk, "old", OLD)
    answer(talk, "new", NEW)
    reply = forecast(talk, OLD + "e" * 200, "f")
    assert reply.blocks_shared == 25
    assert reply.evicted_conversation_ids == ("c-new",)
