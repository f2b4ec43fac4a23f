"""Small models with random weights, as transformers' own model and as ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.models.config import ModelConfig
from engine.models.hf_config import config_from_hf


@dataclass(frozen=True)
class TinyModel:
    """``reference``: transformers' model. ``config``: the same shape for our decoder."""

    reference: Any
    config: ModelConfig

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """The reference's weights by Hugging Face's names."""
        return iter(self.reference.state_dict().items())


def tiny_llama(
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    vocab_size: int = 320,
    hidden_size: int = 48,
    num_layers: int = 3,
    num_heads: int = 6,
    num_kv_heads: int = 2,
    head_dim: int = 16,
    context_length: int = 512,
    tied: bool = True,
    qkv_bias: bool = False,
) -> TinyModel:
    """A random Llama; the head size need not be ``hidden_size / num_heads``."""
    return tiny_model(
        "LlamaForCausalLM",
        seed=seed,
        dtype=dtype,
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_kv_heads,
        head_dim=head_dim,
        max_position_embeddings=context_length,
        tie_word_embeddings=tied,
        attention_bias=qkv_bias,
        rms_norm_eps=1e-5,
    )


def tiny_model(
    architecture: str, *, seed: int = 0, dtype: torch.dtype = torch.float32, **entries: Any
) -> TinyModel:
    """A random model of transformers' class ``architecture``.

    ``entries`` are those of its config.json; our own shape is read from the same config.json.
    """
    import transformers

    values: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "pad_token_id": 0,
        # Large enough that different tokens lead to clearly different logits.
        "initializer_range": 0.3,
        **entries,
    }
    torch.manual_seed(seed)
    model_class = getattr(transformers, architecture)
    reference: Any = model_class(model_class.config_class(**values)).to(dtype)
    reference.eval()
    for name, tensor in reference.named_parameters():
        if name.endswith(("norm.weight", ".bias")):
            tensor.data.add_(torch.randn_like(tensor) * 0.1)
    written = {**reference.config.to_dict(), "architectures": [architecture]}
    return TinyModel(reference, config_from_hf(written, default_name="tiny"))
