"""Paused requests that a step in flight still names give up no more blocks than are needed."""

from __future__ import annotations

import pytest

from tests.helpers.tiny_model import tiny_llama
from tests.helpers.torch_engine import torch_engine


@pytest.mark.parametrize("lag", [0, 1])
def test_only_as_many_give_up_their_blocks_as_a_newcomer_needs(lag: int) -> None:
    """With lag 1 blocks go back a step later, when the step that reads them is done."""
    engine = torch_engine(tiny_llama(), "paged_reference", num_blocks=16, lag=lag)
    for name in "abc":
        engine.add(name, [ord(name) + i for i in range(30)], 40)
    engine.step(8)
    for name in "abc":
        engine.core.pause(name)
    engine.add("newcomer", list(range(200, 220)), 4)
    engine.step(8)
    assert [engine.core.requests[name].num_preemptions for name in "abc"] == [0, 0, 1]
    assert len(engine.output("newcomer")) == 4
    for name in "abc":
        engine.core.resume(name)
    engine.run()
    assert all(len(engine.output(name)) == 40 for name in "abc")
