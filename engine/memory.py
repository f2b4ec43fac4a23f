"""How large the pool may be. Sizes in bytes."""

from __future__ import annotations

import psutil
import torch

from engine.api.errors import OutOfMemoryError
from engine.api.params import EngineConfig

HOST_POOL_CAP_BYTES = 1 << 30
"""On the CPU the pool shares the memory with everything else on the desktop."""

HOST_POOL_SHARE = 0.25
DESKTOP_MARGIN_BYTES = 512 << 20
"""Windows of other programs live in the same memory."""

_MIN_BLOCKS = 4


def host_num_blocks(config: EngineConfig, block_bytes: int) -> int:
    """Blocks of a pool in host memory: as asked for, else a quarter of what is free, at most 1 GiB.

    Raises:
        OutOfMemoryError: the size asked for is more than what is free, or a few blocks do not fit.
    """
    available = psutil.virtual_memory().available
    if config.num_blocks is not None:
        wanted = config.num_blocks * block_bytes
    elif config.kv_cache_bytes is not None:
        wanted = config.kv_cache_bytes
    else:
        wanted = min(int(available * HOST_POOL_SHARE), HOST_POOL_CAP_BYTES)
    if wanted > available:
        raise OutOfMemoryError(
            f"The cache is to have {_mib(wanted)} MiB, but only {_mib(available)} MiB of memory "
            "are free.",
            action="Choose a smaller cache in the settings, or close other programs.",
            wanted_bytes=wanted,
            available_bytes=available,
        )
    num_blocks = config.num_blocks or wanted // block_bytes
    if num_blocks < _MIN_BLOCKS and config.num_blocks is None:
        raise OutOfMemoryError(
            f"{_mib(wanted)} MiB for the cache hold {num_blocks} blocks of {block_bytes} bytes; "
            f"{_MIN_BLOCKS} are the least.",
            wanted_bytes=wanted,
            block_bytes=block_bytes,
        )
    return num_blocks


def check_weights_fit(config: EngineConfig, weights_bytes: int, device: torch.device) -> None:
    """Refuses a model that is too large for the card before it is read.

    Raises:
        OutOfMemoryError: the message has the numbers.
    """
    free, total = torch.cuda.mem_get_info(device)
    room = min(free, int(total * config.gpu_memory_utilization) - (total - free))
    if weights_bytes + DESKTOP_MARGIN_BYTES > room:
        raise OutOfMemoryError(
            f"The model's weights need {_mib(weights_bytes)} MiB, but of the GPU's {_mib(total)} "
            f"MiB only {_mib(max(room - DESKTOP_MARGIN_BYTES, 0))} MiB can be used now.",
            action="Choose a smaller model, or close other programs that use the GPU.",
            free_bytes=free,
            total_bytes=total,
            weights_bytes=weights_bytes,
        )


def device_num_blocks(
    config: EngineConfig,
    block_bytes: int,
    weights_bytes: int,
    workspace_bytes: int,
    device: torch.device,
) -> int:
    """Blocks of a pool on a CUDA device: what is free now that the weights are there, less the
    workspace of a step and the desktop's margin.

    What other programs hold is not free. ``gpu_memory_utilization`` caps the device's use in all.

    Raises:
        OutOfMemoryError: a few blocks do not fit; the message has the numbers.
    """
    free, total = torch.cuda.mem_get_info(device)
    used = total - free
    kept = workspace_bytes + DESKTOP_MARGIN_BYTES
    room = min(free, int(total * config.gpu_memory_utilization) - used) - kept
    if config.num_blocks is not None:
        wanted = config.num_blocks * block_bytes
    elif config.kv_cache_bytes is not None:
        wanted = config.kv_cache_bytes
    else:
        wanted = room
    if wanted > room or wanted < _MIN_BLOCKS * block_bytes:
        per_thousand = block_bytes * 1000 // config.block_size
        raise OutOfMemoryError(
            f"The GPU has {_mib(free)} of {_mib(total)} MiB free beside the weights "
            f"({_mib(weights_bytes)} MiB). {_mib(kept)} MiB are kept for work and the desktop, and "
            f"{_mib(max(room, 0))} MiB are left for the cache, where 1,000 tokens take "
            f"{_mib(per_thousand)} MiB and {_mib(wanted)} MiB are wanted.",
            action="Choose a smaller model or cache, or close other programs that use the GPU.",
            free_bytes=free,
            total_bytes=total,
            weights_bytes=weights_bytes,
            block_bytes=block_bytes,
        )
    return config.num_blocks or wanted // block_bytes


def _mib(size: int) -> int:
    return size >> 20
