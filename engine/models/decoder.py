"""The transformer decoder that every family shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.api.errors import ModelFileError
from engine.attention.base import StepAttention
from engine.linear import GatedLinear, Linear, make_linear
from engine.models.config import ModelConfig
from engine.models.families import Family, family_of
from kernels.reference.rms_norm import rms_norm
from kernels.reference.rope import rope, rope_table


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Tensor
    qkv: Linear
    output: Linear
    mlp_norm: Tensor
    gate_up: GatedLinear
    down: Linear


class Decoder:
    """A decoder-only transformer over packed tokens: no batch dimension, no padding.

    Args:
        config: the model's shape.
        weights: ``(name, tensor)`` in Hugging Face's names, in any order.
        dtype: computation and storage.
        device: where the weights go.
        max_positions: positions that the rotary table covers.

    Raises:
        UnsupportedModelError: an architecture or feature that is not known.
        ModelFileError: a weight is missing, superfluous or of the wrong shape.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Iterable[tuple[str, Tensor]],
        dtype: torch.dtype,
        device: torch.device,
        max_positions: int,
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.device = device
        family = family_of(config)
        found = _Weights(config, family, weights, dtype, device)
        self._embedding = found.take(family.embedding, config.vocab_size, config.hidden_size)
        self._layers = [_make_layer(found, config, family, i) for i in range(config.num_layers)]
        self._final_norm = found.take(family.final_norm, config.hidden_size)
        head = self._embedding
        if not config.tie_word_embeddings:
            head = found.take(family.lm_head, config.vocab_size, config.hidden_size)
        self._lm_head = make_linear(head)
        found.check_all_used()
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
        inv_freq = (config.rope_theta**-exponents).to(device)
        self._cos, self._sin = (
            table.unsqueeze(1) for table in rope_table(inv_freq, max_positions, dtype)
        )

    @property
    def weights_bytes(self) -> int:
        """Bytes that the weights take in memory."""
        total = self._embedding.numel() * self._embedding.element_size() + self._lm_head.nbytes
        for layer in self._layers:
            total += sum(
                part.nbytes
                for part in (
                    layer.attention_norm,
                    layer.qkv,
                    layer.output,
                    layer.mlp_norm,
                    layer.gate_up,
                    layer.down,
                )
            )
        return total + self._final_norm.nbytes

    def forward(
        self, input_ids: Tensor, positions: Tensor, attend: StepAttention, rows: Tensor
    ) -> Tensor:
        """Logits of some rows of a step.

        Args:
            input_ids: ``[tokens]`` int64.
            positions: ``[tokens]`` int64.
            attend: stores and attends; see ``StepAttention``.
            rows: ``[wanted]`` int64, the rows whose logits are wanted; may be none.

        Returns:
            ``[wanted, vocab_size]`` in the model's dtype.
        """
        eps = self.config.rms_norm_eps
        hidden = self._embedding.index_select(0, input_ids)
        cos, sin = self._cos.index_select(0, positions), self._sin.index_select(0, positions)
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(rms_norm(hidden, layer.attention_norm, eps))
            attended = self._attend(index, qkv, cos, sin, attend)
            if index == last and len(rows) != len(hidden):
                # Keys and values are stored: from here on only the wanted rows matter.
                attended, hidden = attended[rows], hidden[rows]
            hidden = layer.output.add(attended, hidden)
            gated = layer.gate_up(rms_norm(hidden, layer.mlp_norm, eps))
            hidden = layer.down.add(gated, hidden)
        return self._lm_head(rms_norm(hidden, self._final_norm, eps))

    def _attend(
        self, index: int, qkv: Tensor, cos: Tensor, sin: Tensor, attend: StepAttention
    ) -> Tensor:
        config = self.config
        num_rotated = config.num_heads + config.num_kv_heads
        rotated_size = num_rotated * config.head_dim
        packed = qkv[:, :rotated_size].view(-1, num_rotated, config.head_dim)
        rotated = rope(packed, cos, sin)
        query = rotated[:, : config.num_heads]
        key = rotated[:, config.num_heads :].flatten(1)
        return attend(index, query, key, qkv[:, rotated_size:])


class _Weights:
    """The model file's tensors by name, converted, each to be taken once."""

    def __init__(
        self,
        config: ModelConfig,
        family: Family,
        weights: Iterable[tuple[str, Tensor]],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._model = config.name
        self._found: dict[str, Tensor] = {}
        for name, tensor in weights:
            tied = name == family.lm_head and config.tie_word_embeddings
            if not tied and not name.endswith(family.ignored_suffixes):
                # A copy: the tensor may be a mapping of a file that is closed or replaced.
                self._found[name] = tensor.to(device=device, dtype=dtype, copy=True)

    def take(self, name: str, *shape: int) -> Tensor:
        tensor = self._found.pop(name, None)
        if tensor is None:
            raise ModelFileError(f"{self._model}: the weight {name} is missing.", weight=name)
        if tuple(tensor.shape) != shape:
            raise ModelFileError(
                f"{self._model}: the weight {name} has the shape {tuple(tensor.shape)}, "
                f"expected {shape}.",
                weight=name,
            )
        return tensor

    def check_all_used(self) -> None:
        if self._found:
            names = sorted(self._found)
            raise ModelFileError(
                f"{self._model}: {len(names)} weights are unknown, the first is {names[0]}.",
                count=len(names),
                weight=names[0],
            )


def _make_layer(found: _Weights, config: ModelConfig, family: Family, index: int) -> _Layer:
    hidden, inner = config.hidden_size, config.intermediate_size
    query_size = config.num_heads * config.head_dim
    kv_size = config.num_kv_heads * config.head_dim
    sizes = (query_size, kv_size, kv_size)

    def stacked(names: Iterable[str], rows: Iterable[int], *columns: int) -> Tensor:
        parts = [
            found.take(name.format(index), size, *columns)
            for name, size in zip(names, rows, strict=True)
        ]
        return torch.cat(parts)

    bias = stacked(family.qkv_bias, sizes) if config.qkv_bias else None
    output_bias = None
    if config.qkv_bias and family.output_bias:
        output_bias = found.take(family.output_bias.format(index), hidden)
    return _Layer(
        attention_norm=found.take(family.attention_norm.format(index), hidden),
        qkv=make_linear(stacked(family.qkv, sizes, hidden), bias),
        output=make_linear(
            found.take(family.output.format(index), hidden, query_size), output_bias
        ),
        mlp_norm=found.take(family.mlp_norm.format(index), hidden),
        gate_up=GatedLinear(make_linear(stacked(family.gate_up, (inner, inner), hidden))),
        down=make_linear(found.take(family.down.format(index), hidden, inner)),
    )
