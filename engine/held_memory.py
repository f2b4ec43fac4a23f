"""What the model that is loaded will give back when it goes, and that it does. No torch."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.host_heap import trim_heap

if TYPE_CHECKING:
    from engine.model_loader import LoadedEngine


@dataclass(frozen=True, slots=True)
class Held:
    """``device``: its name, empty for none. ``nbytes``: of its memory."""

    device: str = ""
    nbytes: int = 0


NOTHING_HELD = Held()


def held_by(engine: LoadedEngine | None) -> Held:
    """What ``engine`` holds. Engine thread."""
    if engine is None:
        return NOTHING_HELD
    info = engine.info
    if info.device.startswith("cuda"):  # needs a GPU
        import torch

        return Held(info.device, torch.cuda.memory_reserved(info.device))
    # Of a pool on the CPU only those blocks take memory that were written to.
    pool = engine.core.pool
    written = pool.num_blocks - pool.num_free
    return Held(info.device, info.weights_bytes + written * engine.block_bytes)


def give_back() -> None:
    """Gives memory that torch or the C library keeps but nobody uses back to the GPU and to the
    system: other programs may want it.
    """
    trim_heap()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
