"""Runs first in the frozen application: says where the starter model lies in the bundle."""

import os
import sys
from pathlib import Path

folder = Path(sys._MEIPASS) / "starter_model"  # type: ignore[attr-defined]
for model in folder.glob("*.gguf"):
    os.environ.setdefault("QUIRE_STARTER_GGUF", str(model))
