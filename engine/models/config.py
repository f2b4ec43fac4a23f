"""A model's shape, normalised from a Hugging Face config.json. No torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

RopeValue = float | int | str | tuple[float, ...]


class Rotations(IntEnum):
    """The rotations that layers of one model may differ in.

    MAIN: of ``rope_theta``, scaled. LOCAL: of ``local_rope_theta``. NONE: queries and keys stay as
    they are.
    """

    MAIN = 0
    LOCAL = 1
    NONE = 2


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What the decoder needs to know. Sizes in elements, lengths in tokens.

    ``architecture`` is the Hugging Face class name (``LlamaForCausalLM``). ``rope_scaling`` holds
    config.json's own entries. Where families differ:

    - ``qkv_bias``, ``output_bias``, ``mlp_bias``: which products add a bias.
    - ``qk_norm``: queries and keys are normalised by head before they are rotated.
    - ``layer_windows``: how many of the last tokens a token sees in each layer, its own included;
      None for all. Empty: all in every layer.
    - ``local_rope_theta``: base of the rotation, unscaled, in the layers with a window; None: all
      layers rotate alike.
    - ``rotary_dim``: how many of a head's first elements are rotated; None: all.
    - ``unrotated_layers``: indices of the layers that do not rotate at all.
    - ``activation``: of the gate, ``silu`` or ``gelu_tanh``.
    - ``norm_offset``: added to the stored weights of all norms.
    - ``post_norms``: what attention and feed-forward add to the residual is normalised first.
    - ``embedding_scale``: factor on the embeddings, not on the output layer tied to them.
    - ``exceeds_float16``: what the layers add up can become larger than 65,504.
    - ``query_scale``: the scores are divided by its root; None: by that of ``head_dim``.
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
    rope_scaling: tuple[tuple[str, RopeValue], ...] = ()
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    layer_windows: tuple[int | None, ...] = ()
    local_rope_theta: float | None = None
    rotary_dim: int | None = None
    unrotated_layers: tuple[int, ...] = ()
    activation: str = "silu"
    norm_offset: float = 0.0
    post_norms: bool = False
    embedding_scale: float = 1.0
    exceeds_float16: bool = False
    query_scale: float | None = None
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None

    @property
    def attention_scale(self) -> float:
        """Factor on the scores."""
        scale: float = (self.query_scale or self.head_dim) ** -0.5
        return scale

    @property
    def windows(self) -> tuple[int | None, ...]:
        """``layer_windows`` with an entry for every layer."""
        return self.layer_windows or (None,) * self.num_layers

    def rotation_of(self, layer: int) -> Rotations:
        """Which rotation a layer's queries and keys get."""
        if layer in self.unrotated_layers:
            return Rotations.NONE
        local = self.local_rope_theta is not None and self.windows[layer] is not None
        return Rotations.LOCAL if local else Rotations.MAIN

    def kv_bytes_per_token(self, element_bytes: int) -> int:
        """Bytes of K and V of one token over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * element_bytes
