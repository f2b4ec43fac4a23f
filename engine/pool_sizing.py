"""How many blocks a GPU has room for, once the model lies on it.

What a full step takes is measured, not guessed.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from engine.api.errors import OutOfMemoryError, is_out_of_memory
from engine.api.params import EngineConfig
from engine.attention.base import AttentionBackend
from engine.attention.make import make_backend
from engine.attention.prefill_tiles import PrefillTiles, TiledChunk, Tiling
from engine.batch import PrefillSpan, StepBatch
from engine.held_memory import give_back
from engine.memory import device_num_blocks
from engine.models.decoder import Decoder

LOGIT_ROWS = 256
"""As many rows of a step draw a token at most, as far as memory is concerned."""

GRAPH_WORKSPACES = 2
"""Steps that were captured as graphs keep a workspace of their own."""

_SHRINK = 0.9
_ATTEMPTS = 4


def measured_num_blocks(
    decoder: Decoder, backend: str, config: EngineConfig, block_bytes: int
) -> int:
    """Blocks that fit beside the weights, the workspace of a full step and the desktop.

    Raises:
        OutOfMemoryError: a few blocks do not fit; the message has the numbers.
    """
    workspace = GRAPH_WORKSPACES * workspace_bytes(decoder, backend, config)
    torch.cuda.empty_cache()
    return device_num_blocks(config, block_bytes, decoder.weights_bytes, workspace, decoder.device)


def workspace_bytes(decoder: Decoder, backend: str, config: EngineConfig) -> int:
    """Bytes that a step at the token budget takes besides weights and pool, at its peak.

    Raises:
        OutOfMemoryError: the step does not fit at all.
    """
    device = decoder.device
    num_tokens = min(config.token_budget, decoder.max_positions)
    num_blocks = -(-num_tokens // config.block_size)
    try:
        attention = make_backend(
            backend, decoder.config, num_blocks, config.block_size, decoder.dtype, device
        )
        positions = torch.arange(num_tokens, device=device)
        rows = positions[-min(LOGIT_ROWS, num_tokens) :]
        table = torch.arange(num_blocks, device=device)
        span = PrefillSpan(0, num_tokens, 0, table, request_id="measure")
        batch = StepBatch(
            input_ids=torch.zeros_like(positions),
            positions=positions,
            slot_mapping=positions,
            num_decodes=0,
            decode_block_tables=positions[:0].view(0, 1),
            decode_lengths=positions[:0],
            max_decode_length=0,
            prefills=(span,),
            sample_rows=rows,
            sampled=(),
            sample_ends=(),
            prefill_tiles=_tiles(attention, num_tokens, table),
        )
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        with torch.inference_mode():
            step = attention.begin_step(batch)
            logits = decoder.forward(batch.input_ids, positions, step, rows)
            # Drawing works on float32 copies.
            _ = logits.float()
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        # The libraries have errors of their own for it.
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(
            f"A step of {num_tokens} tokens does not fit beside the model: {error}",
            action="Choose a smaller token budget or a smaller model.",
            token_budget=num_tokens,
        ) from error
    return torch.cuda.max_memory_allocated(device) - before


def _tiles(attention: AttentionBackend, num_tokens: int, table: Tensor) -> PrefillTiles | None:
    """The prompt cut as the engine's own steps cut theirs, which takes memory of its own."""
    if not isinstance(attention, Tiling):
        return None
    launch = attention.launch(num_tokens)
    tiles = attention.tiles([TiledChunk(0, num_tokens, 0, 0)], launch)
    return PrefillTiles(torch.from_numpy(tiles).to(table.device), table, launch)


def allocate_shrinking(
    num_blocks: int, make: Callable[[int], AttentionBackend]
) -> tuple[AttentionBackend, int]:
    """A backend with as many blocks as can be had: other programs may have taken memory since.

    Returns the backend and its number of blocks.

    Raises:
        OutOfMemoryError: not even a much smaller pool can be had.
    """
    wanted = num_blocks
    for _ in range(_ATTEMPTS):
        try:
            return make(num_blocks), num_blocks
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            num_blocks = max(1, int(num_blocks * _SHRINK))
        # What was had of the larger one lies there in pieces of its own size, of which smaller ones
        # would take one each.
        give_back()
    raise OutOfMemoryError(
        f"The cache was to have {wanted} blocks, but the memory for {num_blocks} cannot be had "
        "either.",
        action="Close other programs, or choose a smaller cache in the settings.",
        num_blocks=wanted,
    )
