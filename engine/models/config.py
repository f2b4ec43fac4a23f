"""A model's shape, normalised from a Hugging Face config.json. No torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What the decoder needs to know. Sizes in elements, lengths in tokens.

    ``architecture`` is the Hugging Face class name (``LlamaForCausalLM``). ``sliding_window`` None
    means full attention in every layer. ``rope_scaling`` holds config.json's own entries.
    """

    architecture: str
    name: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool
    rope_scaling: tuple[tuple[str, float | int | str], ...] = ()
    qkv_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Bytes of K and V of one token over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * element_bytes
