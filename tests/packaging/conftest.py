"""Makes the modules of packaging/ importable, as they are for a script in that folder."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "packaging"

# At the end: nothing there may take the name of an installed library.
sys.path.append(str(FOLDER))
