"""What the command line of a benchmark asks for, and what every workload needs of it. No torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

RANDOM = "random:"


class CannotRunHere(Exception):
    """This machine or device is not one for the workload; the message says what is needed."""


@dataclass(frozen=True, slots=True)
class Options:
    """``model``: a path, ``random:NAME``, or empty for the device's usual one. None: not given.

    ``small``: the least size at which everything is run once. ``tabs`` and ``system`` choose cells
    of W2, ``batches`` and ``contexts`` those of the grids. ``peers``: folder of other kernels.
    ``sweep``: other launches of a kernel too. ``parts`` of the suite, which are to take no more
    than ``seconds`` together.
    """

    model: str = ""
    device: str = "cpu"
    repeats: int | None = None
    small: bool = False
    num_blocks: int | None = None
    block_size: int = 16
    token_budget: int | None = None
    prefill_ms: float | None = None
    lag: int | None = None
    temperature: float = 0.6
    tabs: tuple[int, ...] = ()
    system: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()
    contexts: tuple[int, ...] = ()
    peers: Path | None = None
    models_dir: Path | None = None
    sweep: bool = False
    parts: tuple[str, ...] = ()
    seconds: float = 720.0

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def model_or(self, on_cpu: str, on_gpu: str) -> str:
        """The model asked for, else the usual one of the device; empty is the starter model."""
        return self.model or (on_gpu if self.on_gpu else on_cpu)

    def engine_settings(self, **defaults: object) -> dict[str, object]:
        """Settings for ``EngineConfig.from_mapping``: the defaults, and what was asked for."""
        chosen = {
            "device": self.device,
            "block_size": self.block_size,
            "num_blocks": self.num_blocks,
            "token_budget": self.token_budget,
            "prefill_time_budget_ms": self.prefill_ms,
            "lag": self.lag,
        }
        return defaults | {name: value for name, value in chosen.items() if value is not None}


def models_dir(options: Options) -> Path:
    """The model folder: as asked for, else ``QUIRE_MODELS_DIR``, else the application's."""
    if options.models_dir is not None:
        return options.models_dir
    if folder := os.environ.get("QUIRE_MODELS_DIR"):
        return Path(folder).expanduser()
    # Needs platformdirs, which only the application does.
    from app import paths

    return paths.models_dir()


def model_path(options: Options) -> Path:
    """The model's file or folder; the starter model, fetched if it is absent, if none was named."""
    if options.model:
        return Path(options.model)
    from engine.loading import starter_model

    return starter_model.fetch(models_dir(options))
