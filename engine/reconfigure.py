"""Other settings for an engine that runs: at once where that is possible, else with the next load.

A setting that changes what the blocks hold (attention backend, salt) drops the cache: every request
is computed again and goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from engine.api.events import Configured, ModelInfo
from engine.api.params import EngineConfig
from engine.core import EngineCore

if TYPE_CHECKING:
    # With these comes torch.
    from engine.attention.base import AttentionBackend

AT_ONCE = frozenset(
    {
        "backend",
        "cache_salt",
        "lag",
        "least_prefill_tokens",
        "max_running_requests",
        "prefill_time_budget_ms",
        "prefix_caching",
        "token_budget",
        "watermark",
    }
)
"""Settings that take effect without loading the model again."""

_VOIDS_THE_CACHE = frozenset({"backend", "cache_salt", "prefix_caching"})


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """An attention backend that is ready to take over.

    ``install`` puts it in place of the present one; ``reason`` says in words why it was chosen.
    """

    attention: AttentionBackend
    reason: str
    install: Callable[[], None]


class Reconfigurer:
    """Settings of one loaded engine.

    Args:
        core: the engine.
        config: the settings that it was built with, as the client gave them.
        info: facts of the model and of the backend in use.
        make_root: backend's name and salt to the root of the block hashes.
        prepare: makes a backend by the name of a setting; raises ``EngineError`` if it cannot run
            here or its memory is not to be had.
        fill_in: settings and backend's name to settings without anything left open.
    """

    def __init__(
        self,
        core: EngineCore,
        config: EngineConfig,
        info: ModelInfo,
        make_root: Callable[[str, str], bytes],
        prepare: Callable[[str], BackendChoice],
        fill_in: Callable[[EngineConfig, str], EngineConfig],
    ) -> None:
        self.config = config
        self.info = info
        self._core = core
        self._make_root = make_root
        self._prepare = prepare
        self._fill_in = fill_in

    def configure(self, config: EngineConfig, command_id: str = "") -> Configured:
        """Applies what can be applied at once.

        Raises:
            EngineError: a backend that cannot run here; nothing has been changed then.
        """
        names = [field.name for field in fields(config)]
        changed = [name for name in names if getattr(config, name) != getattr(self.config, name)]
        applied = tuple(name for name in changed if name in AT_ONCE)
        later = tuple(name for name in changed if name not in AT_ONCE)
        wanted = replace(self.config, **{name: getattr(config, name) for name in applied})
        if _VOIDS_THE_CACHE & set(applied):
            self._restart_cache(wanted, new_backend="backend" in applied)
        settings = replace(wanted, prefix_caching=_caches(wanted, self.info))
        self._core.configure(self._fill_in(settings, self.info.backend))
        self.config = wanted
        return Configured(command_id, wanted, self.info, applied, later)

    def _restart_cache(self, config: EngineConfig, *, new_backend: bool) -> None:
        info, change = self.info, _nothing
        if new_backend:
            choice = self._prepare(config.backend)
            change = choice.install
            info = replace(
                info,
                backend=choice.attention.name,
                backend_reason=choice.reason,
                keeps_blocks=choice.attention.cache is not None,
            )
        root = self._core.limits.root
        try:
            self._core.restart_cache(
                self._make_root(info.backend, config.cache_salt),
                prefix_caching=_caches(config, info),
                change=change,
            )
        except Exception:
            # What is computed from now on is the old backend's again.
            self._core.restart_cache(root, prefix_caching=_caches(self.config, self.info))
            raise
        self.info = info


def _caches(config: EngineConfig, info: ModelInfo) -> bool:
    # Blocks found again would hold nothing where keys and values are kept elsewhere.
    return config.prefix_caching and info.keeps_blocks


def _nothing() -> None:
    """Only the salt or the caching changed: no storage is replaced."""
