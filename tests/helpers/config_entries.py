"""Configurations of small models of each family."""

from __future__ import annotations

from typing import Any

from engine.models.config import ModelConfig
from engine.models.hf_config import config_from_hf

SIZES: dict[str, Any] = {
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


def config_of(architecture: str, **entries: Any) -> ModelConfig:
    values = {"architectures": [architecture], **SIZES, **entries}
    return config_from_hf(values, default_name="tiny")
