"""Who gives up its blocks, in every mixture of those that might."""

from __future__ import annotations

from engine.api.params import SamplingParams
from engine.request import Request
from engine.victims import choose_victim

BLOCK_SIZE = 8


def request(name: str, admitted: int, **state: object) -> Request:
    made = Request(name, name, [1, 2, 3], 2, SamplingParams(), 0, 0.0)
    made.admitted, made.block_table = admitted, [admitted]
    for key, value in state.items():
        setattr(made, key, value)
    return made


def victim(asks: Request, *others: Request, focus: str = "") -> str:
    chosen = choose_victim(asks, [asks, *others], focus, BLOCK_SIZE)
    return "" if chosen is None else chosen.request_id


def test_the_latest_admitted_gives_way_be_it_the_one_that_asks() -> None:
    a, b, c = request("a", 0), request("b", 1), request("c", 2)
    assert victim(a, b, c) == "c"
    assert victim(c, a, b) == "c"


def test_the_focused_one_is_spared_while_there_is_another() -> None:
    a, b = request("a", 0), request("b", 1)
    assert victim(b, a, focus="b") == "a"
    assert victim(a, b, focus="b") == "a"
    other = request("c", 2, conversation_id="b")
    # Both are of the focused conversation.
    assert victim(b, other, focus="b") == "c"


def test_a_paused_one_goes_first_even_the_focused() -> None:
    a, b, c = request("a", 0), request("b", 1, paused=True), request("c", 2)
    assert victim(a, b, c) == "b"
    assert victim(a, b, c, focus="b") == "b"


def test_one_that_was_preempted_twice_is_spared_until_it_has_moved_on() -> None:
    a, b = request("a", 0), request("b", 1, num_preemptions=2, tokens_since_admission=7)
    assert victim(a, b) == "a"
    b.tokens_since_admission = BLOCK_SIZE
    assert victim(a, b) == "b"
    b.tokens_since_admission, b.num_preemptions = 0, 1
    assert victim(a, b) == "b"


def test_when_all_are_spared_the_latest_goes_all_the_same() -> None:
    a, b = request("a", 0, num_preemptions=2), request("b", 1, num_preemptions=3)
    assert victim(a, b) == "b"
    assert victim(b, a, focus="b") == "a"


def test_alone_there_is_nobody() -> None:
    a = request("a", 0)
    assert victim(a) == ""
    # Those that hold no block cannot give one.
    assert victim(a, request("b", 1, block_table=[])) == ""
    assert victim(request("c", 2, block_table=[])) == ""
