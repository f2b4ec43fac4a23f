"""Steps for backends without a pool: they compute what they miss of a sequence along the way."""

from __future__ import annotations

from dataclasses import replace

from engine.attention.base import AttentionBackend
from engine.scheduler_output import ScheduledChunk, SchedulerOutput


def catch_up(output: SchedulerOutput, attention: AttentionBackend) -> SchedulerOutput:
    """The same step with each chunk begun where the backend's own memory of its request ends.

    The scheduler counts tokens as computed that such a backend never saw: those of a fork's parent,
    or of every earlier step where it keeps nothing. They are computed again, beyond the step's
    token budget. All chunks become prefill chunks; their order, that of the samples, stays.
    """
    chunks = tuple(_begun_early(chunk, attention) for chunk in output.chunks)
    return replace(output, decodes=(), prefills=chunks)


def _begun_early(chunk: ScheduledChunk, attention: AttentionBackend) -> ScheduledChunk:
    first = attention.first_missing(chunk.request.request_id, chunk.start)
    assert 0 <= first <= chunk.start, "a chunk can only begin earlier"
    num_tokens = chunk.num_tokens + chunk.start - first
    return replace(chunk, start=first, num_tokens=num_tokens)
