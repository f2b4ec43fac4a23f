"""Times of single kernels through the replay of a CUDA graph."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

ROTATED_BYTES = 200_000_000
"""More than three times the largest level-2 cache: what is read again comes from memory."""


def rotations(num_bytes: int) -> int:
    """How many buffers of this size to go through."""
    return max(4, min(256, -(-ROTATED_BYTES // num_bytes)))


def capture(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """A graph of what ``call`` launches, which is run twice before."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
        call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def replay_median(graph: torch.cuda.CUDAGraph, repeats: int = 50) -> float:
    """Median seconds of a replay, by device events."""
    for _ in range(5):
        graph.replay()
    pairs = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        pairs.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) for begin, end in pairs) / 1e3


def time_rotating(call: Callable[[int], object], count: int, repeats: int = 50) -> float:
    """Seconds of one ``call(i)``, over ``i`` from 0 to ``count`` in one graph.

    The gap between two kernels of a graph, about 0.8 µs, is part of it.
    """
    graph = capture(lambda: [call(i) for i in range(count)])
    return replay_median(graph, repeats) / count
