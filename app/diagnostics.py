"""What a report of a fault needs: versions, settings, log, figures of the engine. Qt-free.

No chat text and no secret: not in the log to begin with, and what looks like one is struck out.
"""

from __future__ import annotations

import json
import os
import platform
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app.settings import Settings
from app.versions import libraries, program_versions
from engine.api.events import EngineStats, ModelInfo
from engine.api.files import discard, replace_file
from engine.api.snapshot import Snapshot

_MAX_LOG_BYTES = 1_000_000
_VARIABLES = (
    *("LANG", "LC_ALL", "QT_QPA_PLATFORM", "QT_IM_MODULE", "QT_SCALE_FACTOR", "XDG_SESSION_TYPE"),
    *("XDG_CURRENT_DESKTOP", "CUDA_VISIBLE_DEVICES"),
)
_SECRETS = re.compile(
    r"""(?ix)
    \b(?:hf_|sk-|ghp_|gho_|github_pat_|xox[abp]-)[A-Za-z0-9_-]{8,}
    | (?<=\bbearer\s)[A-Za-z0-9._~+/=-]{8,}
    | (?<=://)[^/\s:@]+:[^/\s@]+(?=@)
    | \b(?:api[_-]?key|token|secret|password|passwd|authorization)\b\s*[=:]\s*(?!\bbearer\b)[^\s,;]+
    """
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of the bundle."""

    name: str
    text: str


def redacted(text: str) -> str:
    """``text`` without what looks like a secret, and without the name of the user's folder."""
    home = str(Path.home())
    if len(home) > 1:
        # In JSON each backslash of a Windows path is doubled; Windows takes slashes too.
        forms = {home, home.replace("\\", "\\\\"), home.replace("\\", "/")}
        ignoring_case = re.IGNORECASE if "\\" in home else 0
        pattern = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
        text = re.sub(pattern, "~", text, flags=ignoring_case)
    return _SECRETS.sub("[struck out]", text)


def collect(
    settings: Settings,
    log_file: Path | None,
    model: ModelInfo | None,
    stats: EngineStats | None,
    snapshot: Snapshot | None,
    window: Mapping[str, str],
) -> list[Entry]:
    """The files of a bundle. ``window``: facts of the screen and of Qt, by name."""
    entries = [
        Entry("versions.json", _json(dict(program_versions()))),
        Entry("libraries.json", _json({lib.name: lib.version for lib in libraries()})),
        Entry("system.json", _json({**_system(), **window})),
        Entry("settings.json", _json(_settings(settings))),
        Entry("engine.json", _json(_engine(model, stats, snapshot))),
    ]
    if log_file is not None:
        for path in (log_file.with_name(log_file.name + ".1"), log_file):
            text = _tail(path)
            if text:
                entries.append(Entry(path.name, redacted(text)))
    return entries


def write_bundle(path: Path, entries: Sequence[Entry]) -> None:
    """Writes the whole bundle or nothing.

    Raises:
        OSError: it cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as bundle:
            for entry in entries:
                bundle.writestr(entry.name, entry.text)
        replace_file(partial, path)
    finally:
        discard(partial)


def _json(value: Any) -> str:
    return redacted(json.dumps(value, indent=2, ensure_ascii=False)) + "\n"


def _system() -> dict[str, str]:
    import psutil

    memory = psutil.virtual_memory()
    known = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return {
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cpu_count": str(os.cpu_count()),
        "memory_total": str(memory.total),
        "memory_available": str(memory.available),
        **known,
    }


def _settings(settings: Settings) -> dict[str, Any]:
    stored = settings.to_json()
    # The user's own words.
    stored.pop("default_system_prompt", None)
    if "sampling" in stored:
        stored["sampling"] = {k: v for k, v in stored["sampling"].items() if k != "stop"}
    return stored


def _engine(
    model: ModelInfo | None, stats: EngineStats | None, snapshot: Snapshot | None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "model": None if model is None else asdict(model),
        "stats": None if stats is None else asdict(stats),
    }
    if snapshot is not None:
        names = (
            *("step", "num_blocks", "block_size", "block_bytes", "watermark_blocks"),
            *("context_length", "num_used", "num_cached", "num_free", "decode_tokens_per_s"),
            *("prefill_tokens_per_s", "total_computed_tokens", "total_cached_tokens"),
            *("invariant_violations", "invariant_message"),
        )
        found["snapshot"] = {name: getattr(snapshot, name) for name in names}
        found["requests"] = [
            {
                "phase": row.phase,
                "blocks": len(row.block_table),
                "num_tokens": row.num_tokens,
                "num_computed_tokens": row.num_computed_tokens,
                "num_cached_tokens": row.num_cached_tokens,
                "waits_for": row.waits_for,
                "blocks_short": row.blocks_short,
            }
            for row in snapshot.requests
        ]
    return found


def _tail(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MAX_LOG_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
