"""The transformer decoder that every family shares."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from engine.attention.base import StepAttention
from engine.models.config import ModelConfig
from engine.models.families import family_of
from engine.models.ops import DecoderOps, ReferenceOps
from engine.models.rotary import Frequencies, frequencies, plain_frequencies
from engine.models.weights import Weights, make_layer
from kernels.reference.rope import rope_table


class Decoder:
    """A decoder-only transformer over packed tokens: no batch dimension, no padding.

    Args:
        config: the model's shape.
        weights: ``(name, tensor)`` in Hugging Face's names, in any order.
        dtype: computation and storage.
        device: where the weights go.
        max_positions: positions that the rotary table covers.
        ops: what computes; the plain operations if None.

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
        ops: DecoderOps | None = None,
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.device = device
        self.max_positions = max_positions
        self._ops = ops = ops or ReferenceOps()
        # Rounded as transformers rounds it.
        self._embedding_scale = float(torch.tensor(config.embedding_scale, dtype=dtype))
        family = family_of(config)
        found = Weights(config, family, weights, dtype, device)
        self._embedding = found.take(
            f"{family.embedding}.weight", config.vocab_size, config.hidden_size
        )
        layers = range(config.num_layers)
        self._layers = [make_layer(found, config, family, ops, index) for index in layers]
        self._final_norm = found.norm(family.final_norm, config.hidden_size)
        head = self._embedding
        if not config.tie_word_embeddings:
            head = found.take(f"{family.lm_head}.weight", config.vocab_size, config.hidden_size)
        self._lm_head = ops.linear(head)
        found.check_all_used()
        # The norm after each layer is the next one's first.
        later = [layer.attention_norm for layer in self._layers[1:]]
        self._next_norms = [*later, self._final_norm]
        turning = [frequencies(config)]
        if config.local_rope_theta is not None:
            turning.append(Frequencies(plain_frequencies(config.local_rope_theta, config.head_dim)))
        self._tables = [_table(each, max_positions, dtype, device) for each in turning]

    @property
    def weights_bytes(self) -> int:
        """Bytes that the weights take in memory."""
        total = self._embedding.nbytes + self._final_norm.nbytes + self._lm_head.nbytes
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
            ``[wanted, vocab_size]`` in the model's dtype.
        """
        ops, eps, last = self._ops, self.config.rms_norm_eps, len(self._layers) - 1
        hidden = self._embedding.index_select(0, input_ids)
        if self._embedding_scale != 1.0:
            hidden = hidden * self._embedding_scale
        rotations = [ops.rotation(cos, sin, positions) for cos, sin in self._tables]
        normed = ops.rms_norm(hidden, self._layers[0].attention_norm, eps)
        for index, layer in enumerate(self._layers):
            rotation = rotations[layer.rotation]
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
    """Cosines and sines, ``[max_positions, 1, head_dim]`` each."""
    inv_freq = turning.inv_freq.to(device)
    cos, sin = rope_table(inv_freq, max_positions, dtype, turning.scale)
    return cos.unsqueeze(1), sin.unsqueeze(1)
