"""Which sizes are captured, and when; without a GPU, by doing their work again."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from engine import step_graphs
from engine.api.errors import DeviceLostError
from engine.attention.prefix_groups import PrefixGroup
from engine.device_batch import DrawKind, HostStep
from engine.device_drawer import Drawn
from engine.prompt_sizes import prompt_rows
from engine.step_inputs import Extras, Sizes, StepInputs
from kernels.device_guard import on_device_of
from tests.helpers.recorded_graphs import DECODES, Tiles, graphs_of, step_of


def test_when_tables_lie_elsewhere_all_are_captured_anew_in_spare_time_too(cuda) -> None:
    graphs, recorder = graphs_of(cuda, None)
    while graphs.prepare():
        """Decodes of all numbers."""
    first = recorder.captured.total()
    graphs._drawer.generation += 1
    assert not graphs.prepare()
    assert recorder.captured.total() == first
    graphs._batch.generation += 1
    while graphs.prepare():
        """The same."""
    assert recorder.captured.total() == 2 * first
    assert graphs.count == first


def test_a_device_that_dies_in_a_capture_is_lost(cuda) -> None:
    graphs, _ = graphs_of(cuda, None)

    def die(_compute: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    graphs._record = die  # type: ignore[assignment]
    with pytest.raises(DeviceLostError, match="illegal memory access"):
        graphs.prepare()


def test_where_all_are_captured_anew_a_failure_is_forgotten(cuda) -> None:
    graphs, recorder = graphs_of(cuda, None)
    graphs.failure = "once"
    assert not graphs.prepare()
    graphs._drawer.generation += 1
    for _ in range(2):
        graphs.run(*step_of(3, 0))
    assert graphs.failure == ""
    assert recorder.captured.total() == 1


def test_of_many_graphs_those_used_last_are_kept(cuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_graphs, "MOST_GRAPHS", 2)
    graphs, recorder = graphs_of(cuda, None)

    def decodes() -> set[int]:
        return {sizes.decodes for sizes, _ in graphs._graphs}

    for count in (1, 1, 2, 2, 1, 4, 4):
        graphs.run(*step_of(count, 0))
    assert decodes() == {1, 4}
    captured = recorder.captured.total()
    graphs.run(*step_of(2, 0))
    # It is one that has not come up before again.
    assert recorder.captured.total() == captured
    graphs.run(*step_of(2, 0))
    assert decodes() == {2, 4}


@pytest.mark.parametrize("tiling", [Tiles(), None], ids=["with prompts", "without"])
def test_sizes_that_will_come_up_are_captured_one_at_a_time(cuda, tiling: Tiles | None) -> None:
    graphs, recorder = graphs_of(cuda, tiling)
    count = 0
    while graphs.prepare():
        count += 1
        assert recorder.captured.total() == count
    assert not graphs.prepare()
    assert set(recorder.captured.values()) == {1}
    # A single conversation's decodes come first.
    first, *_ = recorder.captured
    assert first == (Sizes(1, 0, 1, 0), DrawKind())
    prompts = {sizes.prompt for sizes, _ in recorder.captured}
    if tiling is None:
        assert prompts == {0}
        assert {sizes.decodes for sizes, _ in recorder.captured} == DECODES
    else:
        assert prompts == {0, *(prompt_rows(count) for count in range(1, 2049))}


def test_a_step_of_both_is_run_as_two_until_there_is_time(cuda) -> None:
    """Whoever reads along does not wait for a capture of decodes and prompts together."""
    graphs, recorder = graphs_of(cuda, Tiles())
    while graphs.prepare():
        """Decodes and prompts by themselves."""
    prepared = set(recorder.captured)
    assert all(not (sizes.decodes and sizes.prompt) for sizes, _ in prepared)
    for count in (1, 2, 3):
        drawn = graphs.run(*step_of(3, 40))
        assert drawn is not None
        assert drawn.tokens.tolist() == [0] * 4
        assert recorder.num_replays == 2 * count
    assert set(recorder.captured) == prepared
    assert graphs.prepare()
    ((sizes, _),) = set(recorder.captured) - prepared
    assert (sizes.decodes, sizes.prompt) == (4, 48)
    assert not graphs.prepare()
    graphs.run(*step_of(3, 40))
    assert recorder.num_replays == 7


def test_what_came_up_once_is_not_captured_in_spare_time_either(cuda) -> None:
    graphs, recorder = graphs_of(cuda, Tiles())
    while graphs.prepare():
        """Decodes and prompts by themselves."""
    count = recorder.captured.total()
    graphs.run(*step_of(3, 40))
    assert not graphs.prepare()
    assert recorder.captured.total() == count


def test_without_spare_time_the_halves_are_captured(cuda) -> None:
    graphs, recorder = graphs_of(cuda, Tiles())
    graphs.run(*step_of(3, 40))
    assert not recorder.captured
    graphs.run(*step_of(3, 40))
    assert {(sizes.decodes, sizes.prompt) for sizes, _ in recorder.captured} == {(4, 0), (0, 48)}
    assert recorder.num_replays == 2


def sharing_step(num_prompt: int = 0) -> tuple[HostStep, Extras]:
    """Three decodes that share a beginning."""
    step, extras = step_of(3, num_prompt)
    return step, replace(extras, groups=(PrefixGroup((0, 1, 2), 5),))


@pytest.mark.parametrize("num_prompt", [0, 40])
def test_for_a_shared_beginning_nobody_waits(cuda, num_prompt: int) -> None:
    """Its kernels may have to be compiled: each reads it for itself until there was time."""
    graphs, recorder = graphs_of(cuda, Tiles())
    while graphs.prepare():
        """Decodes and prompts by themselves."""
    prepared = set(recorder.captured)
    for _ in range(5):
        assert graphs.run(*sharing_step(num_prompt)) is not None
    assert set(recorder.captured) == prepared
    while graphs.prepare():
        """What has come up."""
    made = {sizes for sizes, _ in set(recorder.captured) - prepared}
    alone = Sizes(4, 0, 4, 0, groups=1, width=4)
    assert alone in made
    assert {(sizes.prompt, sizes.groups, sizes.width) for sizes in made} == {
        (0, 1, 4),
        (num_prompt and 48, 1, 4),
    }
    before = recorder.num_replays
    graphs.run(*sharing_step(num_prompt))
    assert recorder.num_replays == before + 1


def test_who_asks_for_something_waits_for_one_kernel_at_most(cuda) -> None:
    """The rest is launched, and compiled if need be, when there is time again."""
    graphs, recorder = graphs_of(cuda, Tiles())
    compute, launched, left = recorder.compute, 0, 2

    def launching(inputs: StepInputs, sizes: Sizes, kind: DrawKind) -> Drawn:
        nonlocal launched
        for _ in range(5):
            with on_device_of(inputs.ids):
                launched += 1
        return compute(inputs, sizes, kind)

    def interrupted() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    recorder.compute = launching
    assert graphs.prepare(interrupted)
    assert (launched, recorder.captured.total()) == (2, 0)
    for _ in range(2):
        graphs.run(*step_of(1, 40))
    launched, left = 0, 3
    # What has come up is wanted first, and still is.
    assert graphs.prepare(interrupted)
    assert (launched, left) == (3, -1)
    assert graphs.failure == ""
    assert graphs.prepare()
    assert [(sizes.decodes, sizes.prompt) for sizes, _ in recorder.captured][-1] == (1, 48)
    while graphs.prepare():
        """The first of those that are expected too."""
    assert {sizes.decodes for sizes, _ in recorder.captured} >= DECODES
    assert set(recorder.captured.values()) == {1}


def test_few_that_share_a_beginning_find_their_graphs_ready(cuda) -> None:
    graphs, recorder = graphs_of(cuda, Tiles(), shares=True)
    while graphs.prepare():
        """Those of two, four and eight conversations too."""
    shared = {sizes for sizes, _ in recorder.captured if sizes.groups}
    assert shared == {Sizes(count, 0, count, 0, groups=1, width=count) for count in (2, 4, 8)}
    prepared = set(recorder.captured)
    graphs.run(*sharing_step())
    assert recorder.num_replays == 1
    assert set(recorder.captured) == prepared


def test_where_shared_beginnings_fail_all_others_are_made_ready(cuda) -> None:
    graphs, recorder = graphs_of(cuda, Tiles(), shares=True)
    compute = recorder.compute

    def too_large(inputs: StepInputs, sizes: Sizes, kind: DrawKind) -> Drawn:
        if sizes.groups:
            raise RuntimeError("out of resource: shared memory")
        return compute(inputs, sizes, kind)

    recorder.compute = too_large
    while graphs.prepare():
        """All but those."""
    assert graphs.failure == ""
    assert {sizes.decodes for sizes, _ in recorder.captured} == {0, *DECODES}
    assert not any(sizes.groups for sizes, _ in recorder.captured)


def test_a_shared_beginning_gets_its_graph_though_there_is_never_time(
    cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_graphs, "_WANTED_LONG", 20)
    graphs, recorder = graphs_of(cuda, None)
    shared = Sizes(4, 0, 4, 0, groups=1, width=4)
    for _ in range(20):
        graphs.run(*sharing_step())
    assert [sizes for sizes, _ in recorder.captured] == [Sizes(4, 0, 4, 0)]
    graphs.run(*sharing_step())
    assert [sizes for sizes, _ in recorder.captured] == [Sizes(4, 0, 4, 0), shared]


def test_samples_of_decodes_and_chunks_lie_behind_each_other() -> None:
    """Three decodes in a place for four, then two chunks in a place for eight."""
    drawn = Drawn(torch.arange(12), torch.arange(12.0)[:, None])
    step = SimpleNamespace(num_decodes=3, sampled_rows=[0] * 5)
    close = step_graphs._without_padding(drawn, step, Sizes(4, 16, 12, 9))
    assert close.tokens.tolist() == [0, 1, 2, 4, 5]
    assert close.logprobs is not None
    assert close.logprobs.flatten().tolist() == [0, 1, 2, 4, 5]
    plain = step_graphs._without_padding(Drawn(drawn.tokens, None), step, Sizes(4, 16, 12, 9))
    assert plain.logprobs is None
