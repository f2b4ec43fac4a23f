"""Files that appear whole or not at all, on Windows too. Standard library only.

Windows refuses to rename or remove a file that somebody has open. Virus scanners and search
indexers open each new file for some moments, so what is refused is tried again for a while.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 0.6
"""How long a file that another program has open is waited for. Only on Windows."""
_FIRST_PAUSE_S = 0.01


def replace_file(source: Path, target: Path) -> None:
    """Moves a file or folder to ``target``, whose place it takes. Both lie on one disk.

    Raises:
        OSError: it cannot be moved, or on Windows somebody has had one of them open all the time.
    """
    _patiently(lambda: os.replace(source, target))


def discard(path: Path) -> None:
    """Removes a file of ours that is of no use any more; one that cannot be removed stays."""
    try:
        _patiently(lambda: path.unlink(missing_ok=True))
    except OSError:
        return


def _patiently(act: Callable[[], None]) -> None:
    pause, deadline = _FIRST_PAUSE_S, time.monotonic() + PATIENCE_S
    while True:
        try:
            act()
        except PermissionError:
            # Elsewhere it is about permissions, and waiting does not help.
            if sys.platform != "win32" or time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(pause)
        pause *= 2
