"""Small things that are kept as JSON text between two runs."""

from __future__ import annotations

import json
import logging
from typing import Any

_LOG = logging.getLogger(__name__)


def stored_object(text: str) -> dict[str, Any]:
    """What an object was stored as; empty for no text, damaged text and anything else."""
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        _LOG.warning("something stored is left out: %s", error)
        return {}
    return found if isinstance(found, dict) else {}
