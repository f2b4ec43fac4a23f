"""A model's first steps fit into its context and its pool, however small those are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.api.params import EngineConfig, SamplingParams
from engine.engine_builder import build_engine
from engine.loading.progress import never_cancelled
from tests.helpers.tiny_gguf import TinyGguf

CONFIG = EngineConfig(device="cpu", dtype="float32", block_size=8)


@pytest.mark.parametrize(
    ("context", "num_blocks"), [(1, 16), (2, 16), (32, 16), (64, 16), (65, 16), (None, 1)]
)
def test_a_short_context_is_no_obstacle(
    tmp_path: Path, context: int | None, num_blocks: int
) -> None:
    path = TinyGguf().write(tmp_path / "tiny.gguf")
    config = replace(CONFIG, max_model_len=context, num_blocks=num_blocks)
    loaded = build_engine(path, tmp_path / "models", config, lambda *_: None, never_cancelled)
    if context != 1:
        (answer,) = loaded.core.generate([[5]], SamplingParams(max_tokens=1))
        assert len(answer.token_ids) == 1
