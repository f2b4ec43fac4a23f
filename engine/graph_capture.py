"""Captures work on a GPU as a CUDA graph, without disturbing what else goes on there."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

import torch

_T = TypeVar("_T")


class GraphCapture:
    """Graphs of one device, whose memory they share: what one gave holds until the next is
    captured or replayed.

    ``torch.cuda.graph`` would give all unused memory back first, on the device and the host's
    pinned memory too, which then has to be had again: up to a second in which nobody is answered.

    Args:
        device: where they run.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = _capture_stream(device)
        self._memory = torch.cuda.graph_pool_handle()
        self._keeper: torch.cuda.CUDAGraph | None = None

    def __call__(self, compute: Callable[[], _T]) -> tuple[torch.cuda.CUDAGraph, _T]:
        """The graph of what ``compute`` launches, and what it returned. All kernels must have been
        run before.
        """
        if self._keeper is None:
            # torch takes no more captures into memory whose last graph has gone, as when all are
            # captured anew. This one stays.
            self._keeper, _ = self._capture(lambda: torch.zeros(1, device=self._device))
        return self._capture(compute)

    def _capture(self, compute: Callable[[], _T]) -> tuple[torch.cuda.CUDAGraph, _T]:
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            # Other threads may use the device meanwhile: another model is loaded, say.
            graph.capture_begin(pool=self._memory, capture_error_mode="thread_local")
            try:
                result = compute()
            except BaseException:
                self._break_off(graph)
                raise
            graph.capture_end()
        return graph, result

    def _break_off(self, graph: torch.cuda.CUDAGraph) -> None:
        """Ends a capture in which something was raised: that is to be told, not how it ended."""
        try:
            graph.capture_end()
        except RuntimeError:
            # torch takes this memory for such that is still captured into.
            self._memory, self._keeper = torch.cuda.graph_pool_handle(), None


@functools.cache
def _capture_stream(device: torch.device) -> torch.cuda.Stream:
    """One for all graphs of a device: for each stream the libraries keep a workspace for good."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
