"""The memory of CUDA graphs over their lives, by torch's rules and without a GPU."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from engine import graph_capture
from engine.graph_capture import GraphCapture


class Cuda:
    """torch's account of its pools.

    A pool whose last graph has gone takes no more captures, nor does one in which the end of a
    capture failed.
    """

    def __init__(self) -> None:
        self.num_pools = self.num_streams = 0
        self.alive: Counter[int] = Counter()
        self.open: set[int] = set()
        self.breaks = False

    def graph_pool_handle(self) -> int:
        self.num_pools += 1
        return self.num_pools

    def synchronize(self, _device: object) -> None:
        pass

    def Stream(self, _device: object) -> int:
        self.num_streams += 1
        return self.num_streams

    def stream(self, _stream: int) -> nullcontext[None]:
        return nullcontext()

    def CUDAGraph(self) -> Graph:
        return Graph(self)


class Graph:
    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.pool: int | None = None

    def capture_begin(self, pool: int, capture_error_mode: str) -> None:
        if self.cuda.alive.get(pool) == 0:
            raise RuntimeError("use_count > 0 INTERNAL ASSERT FAILED")
        if pool in self.cuda.open:
            raise RuntimeError("already recording to mempool_id")
        self.cuda.open.add(pool)
        self.cuda.alive[pool] += 1
        self.pool = pool

    def capture_end(self) -> None:
        assert self.pool is not None
        if self.cuda.breaks:
            raise RuntimeError("operation failed due to a previous error during capture")
        self.cuda.open.discard(self.pool)

    def __del__(self) -> None:
        if self.pool is not None:
            self.cuda.alive[self.pool] -= 1


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    made = Cuda()
    fake = SimpleNamespace(cuda=made, zeros=lambda _count, device: device)
    monkeypatch.setattr(graph_capture, "torch", fake)
    graph_capture._capture_stream.cache_clear()
    yield made
    graph_capture._capture_stream.cache_clear()


def answer() -> int:
    return 42


def test_when_all_graphs_have_gone_their_memory_serves_new_ones(cuda: Cuda) -> None:
    capture = GraphCapture("card")  # type: ignore[arg-type]
    for _ in range(3):
        graph, result = capture(answer)
        assert result == 42
        del graph
    assert cuda.num_pools == 1


def test_with_the_last_user_the_memory_goes(cuda: Cuda) -> None:
    capture = GraphCapture("card")  # type: ignore[arg-type]
    graph, _ = capture(answer)
    del capture
    assert cuda.alive[1] == 1
    del graph
    assert cuda.alive[1] == 0


def test_models_that_follow_each_other_share_a_stream(cuda: Cuda) -> None:
    for _ in range(3):
        GraphCapture("card")(answer)  # type: ignore[arg-type]
    assert (cuda.num_pools, cuda.num_streams) == (3, 1)


@pytest.mark.parametrize("breaks", [False, True], ids=["ends", "breaks"])
def test_what_failed_in_a_capture_is_told_and_the_next_one_succeeds(
    cuda: Cuda, breaks: bool
) -> None:
    capture = GraphCapture("card")  # type: ignore[arg-type]
    first, _ = capture(answer)

    def fail() -> int:
        cuda.breaks = breaks
        raise MemoryError("tried to allocate 2 GiB")

    with pytest.raises(MemoryError, match="2 GiB"):
        capture(fail)
    cuda.breaks = False
    assert capture(answer)[1] == 42
    assert cuda.num_pools == 1 + breaks
    del first
