"""A model file's tensors, put together into the decoder's layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.api.errors import ModelFileError
from engine.linear import GatedLinear, Linear
from engine.models.config import ModelConfig
from engine.models.families import Family
from engine.models.ops import DecoderOps, Heads, NormedLinear


@dataclass(frozen=True, slots=True)
class Layer:
    """``rotation``: which of the model's rotary tables is used. Norms: ``[hidden]``."""

    attention_norm: Tensor
    qkv: Linear
    heads: Heads
    output: Linear
    mlp_norm: Tensor
    gate_up: GatedLinear
    down: Linear
    rotation: int

    @property
    def nbytes(self) -> int:
        """Bytes that the weights take."""
        parts = (
            self.attention_norm,
            self.qkv,
            self.output,
            self.mlp_norm,
            self.gate_up,
            self.down,
        )
        head_norms = 0 if self.heads.norm is None else self.heads.norm.nbytes
        return head_norms + sum(part.nbytes for part in parts)


class Weights:
    """The model file's tensors by name, converted, each to be taken once.

    Raises:
        ModelFileError: from ``take`` and ``check_all_used``.
    """

    def __init__(
        self,
        config: ModelConfig,
        family: Family,
        weights: Iterable[tuple[str, Tensor]],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._config = config
        self._found: dict[str, Tensor] = {}
        for name, tensor in weights:
            tied = name == f"{family.lm_head}.weight" and config.tie_word_embeddings
            if not tied and not name.endswith(family.ignored_suffixes):
                # A copy: the tensor may be a mapping of a file that is closed or replaced.
                self._found[name] = tensor.to(device=device, dtype=dtype, copy=True)

    def take(self, name: str, *shape: int) -> Tensor:
        """A tensor of exactly this shape."""
        model = self._config.name
        tensor = self._found.pop(name, None)
        if tensor is None:
            raise ModelFileError(f"{model}: the weight {name} is missing.", weight=name)
        if tuple(tensor.shape) != shape:
            raise ModelFileError(
                f"{model}: the weight {name} has the shape {tuple(tensor.shape)}, "
                f"expected {shape}.",
                weight=name,
            )
        return tensor

    def norm(self, name: str, size: int) -> Tensor:
        """Weights of a norm, ``[size]``, as they are multiplied with."""
        weight = self.take(f"{name}.weight", size)
        offset = self._config.norm_offset
        return weight + offset if offset else weight

    def stacked(self, names: Iterable[str], sizes: Iterable[int], *columns: int) -> Tensor:
        """Several tensors, ``[size, *columns]`` each, in one."""
        parts = zip(names, sizes, strict=True)
        return torch.cat([self.take(name, size, *columns) for name, size in parts])

    def check_all_used(self) -> None:
        if self._found:
            names = sorted(self._found)
            raise ModelFileError(
                f"{self._config.name}: {len(names)} weights are unknown, the first is {names[0]}.",
                count=len(names),
                weight=names[0],
            )


def make_layer(
    found: Weights, config: ModelConfig, family: Family, ops: DecoderOps, index: int
) -> Layer:
    """Takes the weights of layer ``index``."""
    hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    query_size, kv_size = config.num_heads * head_dim, config.num_kv_heads * head_dim

    def product(names: Iterable[str], sizes: Iterable[int], columns: int, bias: bool) -> Linear:
        names, sizes = [name.format(index) for name in names], list(sizes)
        weight = found.stacked([f"{name}.weight" for name in names], sizes, columns)
        offsets = found.stacked([f"{name}.bias" for name in names], sizes) if bias else None
        return ops.linear(weight, offsets)

    def normed(linear: Linear, name: str) -> Linear:
        if not config.post_norms:
            return linear
        weight = found.norm(name.format(index), hidden)
        return NormedLinear(linear, weight, config.rms_norm_eps, ops)

    head_norm = None
    if config.qk_norm:
        query_norm = found.norm(family.query_norm.format(index), head_dim)
        key_norm = found.norm(family.key_norm.format(index), head_dim)
        counts = torch.tensor([config.num_heads, config.num_kv_heads], device=query_norm.device)
        head_norm = torch.stack((query_norm, key_norm)).repeat_interleave(counts, 0)
    output = product([family.output], [hidden], query_size, config.output_bias)
    gate_up = product(family.gate_up, (inner, inner), hidden, config.mlp_bias)
    down = product([family.down], [hidden], inner, config.mlp_bias)
    return Layer(
        attention_norm=found.norm(family.attention_norm.format(index), hidden),
        qkv=product(family.qkv, (query_size, kv_size, kv_size), hidden, config.qkv_bias),
        heads=Heads(
            config.num_heads, config.num_kv_heads, head_dim, head_norm, config.rms_norm_eps
        ),
        output=normed(output, family.attention_post_norm),
        mlp_norm=found.norm(family.mlp_norm.format(index), hidden),
        gate_up=ops.gated(gate_up, config.activation),
        down=normed(down, family.mlp_post_norm),
        rotation=int(config.local_rope_theta is not None and config.windows[index] is not None),
    )
