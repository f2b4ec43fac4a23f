"""How long this process has existed. Qt-free."""

from __future__ import annotations

import os
import sys
import time


def process_age_s() -> float:
    """Seconds since the process was created, to about 10 ms."""
    if sys.platform == "linux":
        # psutil would add the boot time, which the kernel gives in whole seconds.
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            after_name = file.read().rpartition(")")[2].split()
        started_s = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    import psutil

    return time.time() - float(psutil.Process().create_time())
