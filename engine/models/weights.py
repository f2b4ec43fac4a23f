"""A model file's tensors, put together into the decoder's layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.api.errors import ModelFileError
from engine.linear import GatedLinear, Linear
from engine.loading.progress import Breathe, no_breath
from engine.models.config import ModelConfig, Rotations
from engine.models.families import Family
from engine.models.ops import DecoderOps, Heads, NormedLinear
from engine.quantized.embedding import Embedding, GroupedEmbedding, PlainEmbedding
from engine.quantized.grouped import GroupedWeight, stacked
from engine.quantized.int4_linear import StackedLinear

_PIECE_ELEMENTS = 8 << 20


@dataclass(frozen=True, slots=True)
class Layer:
    """``rotation``: which of the model's rotations it gets. Norms: ``[hidden]``."""

    attention_norm: Tensor
    qkv: Linear
    heads: Heads
    output: Linear
    mlp_norm: Tensor
    gate_up: GatedLinear
    down: Linear
    rotation: Rotations

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
    """The model file's tensors by name, converted, each to be taken once. What is quantised stays
    so where the operations can multiply with it. ``breathe`` is called for each few million values.

    Raises:
        ModelFileError: from ``take``, what takes through it, and ``check_all_used``.
    """

    def __init__(
        self,
        config: ModelConfig,
        family: Family,
        weights: Iterable[tuple[str, Tensor | GroupedWeight]],
        dtype: torch.dtype,
        device: torch.device,
        ops: DecoderOps,
        breathe: Breathe = no_breath,
    ) -> None:
        self._config = config
        self._dtype = dtype
        self._device = device
        self._ops = ops
        self._breathe = breathe
        self._found: dict[str, Tensor | GroupedWeight] = {}
        for name, tensor in weights:
            tied = name == f"{family.lm_head}.weight" and config.tie_word_embeddings
            if tied or name.endswith(family.ignored_suffixes):
                continue
            if isinstance(tensor, GroupedWeight):
                narrow = tensor.narrowed() if dtype.itemsize == 2 else tensor
                self._found[name] = narrow.to(device)
            else:
                self._found[name] = self._copied(tensor)

    def _copied(self, tensor: Tensor) -> Tensor:
        """A copy: the tensor may be a mapping of a file that is closed or replaced."""
        if not tensor.dim():
            return tensor.to(device=self._device, dtype=self._dtype, copy=True)
        out = torch.empty(tensor.shape, dtype=self._dtype, device=self._device)
        for piece in _pieces(tensor.shape):
            self._breathe()
            out[piece].copy_(tensor[piece])
        return out

    def _expanded(self, weight: GroupedWeight) -> Tensor:
        out = torch.empty(weight.shape, dtype=self._dtype, device=weight.codes.device)
        for piece in _pieces(weight.shape):
            self._breathe()
            out[piece] = weight.rows(piece).expand(self._dtype)
        return out

    def take(self, name: str, *shape: int) -> Tensor:
        """A tensor of exactly this shape."""
        found = self._take(name, shape)
        return self._expanded(found) if isinstance(found, GroupedWeight) else found

    def _take(self, name: str, shape: tuple[int, ...]) -> Tensor | GroupedWeight:
        self._breathe()
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

    def product(
        self, names: Sequence[str], sizes: Sequence[int], columns: int, bias: bool = False
    ) -> Linear:
        """One product with several weights, ``[size, columns]`` each, row after row."""
        weights = [f"{name}.weight" for name in names]
        found = zip(weights, sizes, strict=True)
        parts = [self._kept(self._take(name, (size, columns))) for name, size in found]
        offsets = self.stacked([f"{name}.bias" for name in names], sizes) if bias else None
        whole = _joined(parts)
        if whole is not None:
            return self._multiplied(whole, offsets)
        shares = [None] * len(parts) if offsets is None else torch.split(offsets, list(sizes))
        each = zip(parts, shares, strict=True)
        return StackedLinear([self._multiplied(part, share) for part, share in each])

    def embedding(self, name: str, head: str | None) -> tuple[Embedding, Linear]:
        """The embedding, and the output layer: ``head``, or that of the embedding if it is None."""
        rows, columns = self._config.vocab_size, self._config.hidden_size
        found = self._take(f"{name}.weight", (rows, columns))
        last = found if head is None else self._take(f"{head}.weight", (rows, columns))
        embedding: Embedding
        if isinstance(found, GroupedWeight):
            embedding = GroupedEmbedding(found, self._dtype)
        else:
            embedding = PlainEmbedding(found)
        return embedding, self._output(last)

    def _output(self, weight: Tensor | GroupedWeight) -> Linear:
        if isinstance(weight, GroupedWeight):
            output = self._ops.grouped_output(weight, self._dtype, self._breathe)
            if output is not None:
                return output
        return self._multiplied(self._kept(weight), None)

    def _kept(self, weight: Tensor | GroupedWeight) -> Tensor | GroupedWeight:
        if isinstance(weight, Tensor) or self._ops.keeps(weight, self._dtype):
            return weight
        return self._expanded(weight)

    def _multiplied(self, weight: Tensor | GroupedWeight, bias: Tensor | None) -> Linear:
        if isinstance(weight, Tensor):
            return self._ops.linear(weight, bias)
        return self._ops.grouped(weight, bias, self._dtype, self._breathe)

    def check_all_used(self) -> None:
        if self._found:
            names = sorted(self._found)
            raise ModelFileError(
                f"{self._config.name}: {len(names)} weights are unknown, the first is {names[0]}.",
                count=len(names),
                weight=names[0],
            )


def _pieces(shape: Sequence[int]) -> Iterator[slice]:
    """The rows of a tensor, a few million values at a time."""
    rows = shape[0]
    step = max(_PIECE_ELEMENTS * rows // max(math.prod(shape), 1), 1)
    return (slice(start, start + step) for start in range(0, rows, step))


def _joined(parts: Sequence[Tensor | GroupedWeight]) -> Tensor | GroupedWeight | None:
    """The parts as one weight; None if they are of different kinds."""
    plain = [part for part in parts if isinstance(part, Tensor)]
    if len(plain) == len(parts):
        return torch.cat(plain)
    quantised = [part for part in parts if isinstance(part, GroupedWeight)]
    return stacked(quantised) if len(quantised) == len(parts) else None


def make_layer(
    found: Weights, config: ModelConfig, family: Family, ops: DecoderOps, index: int
) -> Layer:
    """Takes the weights of layer ``index``."""
    hidden, inner, head_dim = config.hidden_size, config.intermediate_size, config.head_dim
    query_size, kv_size = config.num_heads * head_dim, config.num_kv_heads * head_dim

    def product(names: Iterable[str], sizes: Iterable[int], columns: int, bias: bool) -> Linear:
        names, sizes = [name.format(index) for name in names], list(sizes)
        if len(names) == 1:
            # Some families keep the parts stacked.
            sizes = [sum(sizes)]
        return found.product(names, sizes, columns, bias)

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
        rotation=config.rotation_of(index),
    )
