"""How large the pool may be. Sizes in bytes."""

from __future__ import annotations

import psutil

from engine.api.errors import OutOfMemoryError
from engine.api.params import EngineConfig

HOST_POOL_CAP_BYTES = 1 << 30
"""On the CPU the pool shares the memory with everything else on the desktop."""

HOST_POOL_SHARE = 0.25
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


def _mib(size: int) -> int:
    return size >> 20
