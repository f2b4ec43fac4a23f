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


def free_bytes(device: torch.device) -> int:
    """Bytes of the device's memory that are free now."""
    if device.type == "cpu":
        return int(psutil.virtual_memory().available)
    # What the model before this one has left with torch is free too.
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def host_num_blocks(config: EngineConfig, block_bytes: int, weights_bytes: int = 0) -> int:
    """Blocks of a pool in host memory, once weights of ``weights_bytes`` lie there too.

    Raises:
        OutOfMemoryError: see ``plan_host_blocks``.
    """
    return plan_host_blocks(config, block_bytes, psutil.virtual_memory().available, weights_bytes)


def plan_host_blocks(
    config: EngineConfig, block_bytes: int, available: int, weights_bytes: int = 0
) -> int:
    """Blocks of a pool in host memory: as asked for, else a quarter of what is free, at most 1 GiB.

    ``available``: what is free now, before the weights are there.

    Raises:
        OutOfMemoryError: the weights do not fit, the size asked for is more than what is free
            beside them, or a few blocks do not fit.
    """
    if weights_bytes > available:
        raise OutOfMemoryError(
            f"The model's weights need {_mib(weights_bytes)} MiB, but only {_mib(available)} MiB "
            "of memory are free.",
            action="Choose a smaller model, or close other programs.",
            weights_bytes=weights_bytes,
            available_bytes=available,
        )
    available -= weights_bytes
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


def check_weights_fit(
    config: EngineConfig, weights_bytes: int, block_bytes: int, device: torch.device
) -> None:
    """Refuses a model that is too large for the card before it is read.

    ``block_bytes``: of one block of the cache, for what the user is told.

    Raises:
        OutOfMemoryError: the message has the numbers.
    """
    # What the model before this one has left with torch is free too.
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    room = min(free, int(total * config.gpu_memory_utilization) - (total - free))
    if weights_bytes + DESKTOP_MARGIN_BYTES > room:
        raise OutOfMemoryError(
            f"The model's weights need {_mib(weights_bytes)} MiB, but of the GPU's {_mib(total)} "
            f"MiB only {_mib(max(room - DESKTOP_MARGIN_BYTES, 0))} MiB can be used now. In the "
            f"cache 1,000 tokens take {_mib(block_bytes * 1000 // config.block_size)} MiB more.",
            action="Choose a smaller model, or close other programs that use the GPU.",
            free_bytes=free,
            total_bytes=total,
            weights_bytes=weights_bytes,
            block_bytes=block_bytes,
        )


def device_num_blocks(
    config: EngineConfig,
    block_bytes: int,
    weights_bytes: int,
    workspace_bytes: int,
    device: torch.device,
) -> int:
    """Blocks of a pool on a CUDA device now that the weights are there; see
    ``plan_device_blocks``.

    Raises:
        OutOfMemoryError: a few blocks do not fit; the message has the numbers.
    """
    memory = torch.cuda.mem_get_info(device)
    return plan_device_blocks(config, block_bytes, weights_bytes, workspace_bytes, memory)


def plan_device_blocks(
    config: EngineConfig,
    block_bytes: int,
    weights_bytes: int,
    workspace_bytes: int,
    memory: tuple[int, int],
) -> int:
    """Blocks of a pool: what is free beside the weights, less the workspace of a step and the
    desktop's margin.

    What other programs hold is not free. ``gpu_memory_utilization`` caps the device's use in all.
    ``memory``: bytes that are free once the weights are there, and in all.

    Raises:
        OutOfMemoryError: a few blocks do not fit; the message has the numbers.
    """
    free, total = memory
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
