"""A step's inputs on the device, in one copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from engine.batch import StepBatch


def to_device(batch: StepBatch, device: torch.device) -> StepBatch:
    """The same step with its tensors on ``device``.

    All of them are packed into one pinned buffer and copied at once: a copy call costs about 50 µs
    of the host whatever its size. On the CPU the batch itself is returned.
    """
    return batch if device.type == "cpu" else _packed_copy(batch, device)


def _packed_copy(batch: StepBatch, device: torch.device) -> StepBatch:  # needs a GPU
    spans = [span.block_table for span in batch.prefills]
    parts = [
        batch.input_ids,
        batch.positions,
        batch.slot_mapping,
        batch.decode_block_tables,
        batch.decode_lengths,
        batch.sample_rows,
        *spans,
    ]
    sizes = [part.numel() for part in parts]
    # A fresh pinned buffer a step: the allocator hands it out again only when its copy is done.
    packed = torch.empty(sum(sizes), dtype=torch.int64, pin_memory=True)
    torch.cat([part.flatten() for part in parts], out=packed)
    on_device = packed.to(device, non_blocking=True)
    pieces: Iterator[Tensor] = iter(torch.split(on_device, sizes))
    return replace(
        batch,
        input_ids=next(pieces),
        positions=next(pieces),
        slot_mapping=next(pieces),
        decode_block_tables=next(pieces).view(batch.decode_block_tables.shape),
        decode_lengths=next(pieces),
        sample_rows=next(pieces),
        prefills=tuple(replace(span, block_table=next(pieces)) for span in batch.prefills),
    )
