"""The transformer decoder that every family shares."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from engine.attention.base import StepAttention
from engine.loading.progress import Breathe, Told, no_breath, tell_nobody
from engine.models.config import ModelConfig
from engine.models.families import family_of
from engine.models.ops import DecoderOps, ReferenceOps
from engine.models.rotary import Frequencies, rotations
from engine.models.weights import Weights, make_layer
from engine.quantized.grouped import GroupedWeight
from kernels.reference.rope import rope_table


class Decoder:
    """A decoder-only transformer over packed tokens: no batch dimension, no padding.

    Args:
        config: the model's shape.
        weights: ``(name, tensor)`` in Hugging Face's names, in any order; may be quantised.
        dtype: computation and storage.
        device: where the weights go.
        max_positions: positions that the rotary table covers.
        ops: what computes; the plain operations if None.
        breathe: called now and then while the weights are converted; what it raises ends that.
        converted: told how much of them is, once all are read.

    Raises:
        UnsupportedModelError: an architecture or feature that is not known.
        ModelFileError: a weight is missing, superfluous or of the wrong shape.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Iterable[tuple[str, Tensor | GroupedWeight]],
        dtype: torch.dtype,
        device: torch.device,
        max_positions: int,
        ops: DecoderOps | None = None,
        breathe: Breathe = no_breath,
        converted: Told = tell_nobody,
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.device = device
        self.max_positions = max_positions
        self._ops = ops = ops or ReferenceOps()
        # Rounded as transformers rounds it.
        self._embedding_scale = float(torch.tensor(config.embedding_scale, dtype=dtype))
        family = family_of(config)
        found = Weights(config, family, weights, dtype, device, ops, breathe)
        converted(0.0)
        head = None if config.tie_word_embeddings else family.lm_head
        self._embedding, self._lm_head = found.embedding(family.embedding, head)
        self._layers = []
        for index in range(config.num_layers):
            # The embedding counts as one more.
            converted((1 + index) / (1 + config.num_layers))
            self._layers.append(make_layer(found, config, family, ops, index))
        self._final_norm = found.norm(family.final_norm, config.hidden_size)
        found.check_all_used()
        # The norm after each layer is the next one's first.
        later = [layer.attention_norm for layer in self._layers[1:]]
        self._next_norms = [*later, self._final_norm]
        self._tables = {
            kind: _table(turning, max_positions, dtype, device)
            for kind, turning in rotations(config, max_positions).items()
        }

    @property
    def weights_bytes(self) -> int:
        """Bytes that the weights take in memory; a tensor that serves twice counts once."""
        total = self._final_norm.nbytes + self._lm_head.nbytes
        tied = self.config.tie_word_embeddings
        if not (tied and getattr(self._lm_head, "keeps_tensor", False)):
            total += self._embedding.nbytes
        return total + sum(layer.nbytes for layer in self._layers)

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
            ``[wanted, vocab_size]`` in the model's dtype; in float32 from an ``Int8Output``.
        """
        ops, eps, last = self._ops, self.config.rms_norm_eps, len(self._layers) - 1
        hidden = self._embedding(input_ids)
        if self._embedding_scale != 1.0:
            hidden = hidden * self._embedding_scale
        turned = {
            kind: ops.rotation(cos, sin, positions) for kind, (cos, sin) in self._tables.items()
        }
        normed = ops.rms_norm(hidden, self._layers[0].attention_norm, eps)
        for index, layer in enumerate(self._layers):
            rotation = turned[layer.rotation]
            attended = ops.attend(index, layer.qkv(normed), layer.heads, rotation, attend)
            if index == last and len(rows) != len(hidden):
                # Keys and values are stored: from here on only the wanted rows matter.
                attended, hidden = attended[rows], hidden[rows]
            hidden, normed = ops.add_norm(layer.output, attended, hidden, layer.mlp_norm, eps)
            gated = layer.gate_up(normed)
            hidden, normed = ops.add_norm(layer.down, gated, hidden, self._next_norms[index], eps)
        return self._lm_head(normed)


def _table(
    turning: Frequencies, max_positions: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosines and sines, ``[max_positions, 1, rotary_dim]`` each."""
    inv_freq = turning.inv_freq.to(device)
    cos, sin = rope_table(inv_freq, max_positions, dtype, turning.scale)
    return cos.unsqueeze(1), sin.unsqueeze(1)
