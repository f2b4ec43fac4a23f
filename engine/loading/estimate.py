"""What a model would take in memory, before it is loaded. Sizes in bytes.

A test loads models of every family and holds these numbers against what is then there.
"""

from __future__ import annotations

from dataclasses import dataclass

import psutil
import torch

from engine.api.errors import OutOfMemoryError
from engine.api.events import WeightsKept
from engine.api.params import EngineConfig
from engine.devices import resolve_device, resolve_dtype
from engine.held_memory import NOTHING_HELD, Held
from engine.linear import can_pack
from engine.loading.describe import ModelFacts
from engine.loading.stored import needed_tensors
from engine.memory import plan_device_blocks, plan_host_blocks
from engine.models.config import ModelConfig
from engine.pool_sizing import GRAPH_WORKSPACES, LOGIT_ROWS
from engine.quantized.choice import choose_kept, expansion_bytes, kept_bytes


@dataclass(frozen=True, slots=True)
class Memory:
    """Of a device. ``free``: now, with what the model that is loaded gives back."""

    free: int
    total: int


@dataclass(frozen=True, slots=True)
class LoadEstimate:
    """``workspace_bytes``: of a full step at its peak, and of the rotary tables. ``num_blocks``: 0
    if nothing fits.
    """

    device: torch.device
    dtype: torch.dtype
    context_length: int
    weights_bytes: int
    workspace_bytes: int
    block_bytes: int
    memory: Memory
    num_blocks: int

    @property
    def fits(self) -> bool:
        """Whether it can be loaded as things are."""
        return self.num_blocks > 0


def estimate(facts: ModelFacts, settings: EngineConfig, held: Held = NOTHING_HELD) -> LoadEstimate:
    """What loading the model with these settings would take.

    Raises:
        DeviceError: the settings ask for a device that is not there.
        NotSupportedYetError: a device that the engine cannot use yet.
    """
    config = facts.config
    device = resolve_device(settings.device)
    dtype = resolve_dtype(settings.dtype, device, config)
    context = min(settings.max_model_len or config.context_length, config.context_length)
    memory = _memory(device, held)
    is_gguf = facts.format == "gguf"
    kept = choose_kept(settings, is_gguf, facts.num_parameters, device, dtype, memory.free)
    weights = weights_bytes(facts, kept, device, dtype)
    tables = _tables_bytes(config, context, dtype)
    step = step_bytes(config, min(settings.token_budget, context), dtype)
    step += expansion_bytes(config, kept, device, dtype)
    workspace = tables + step * (1 if device.type == "cpu" else GRAPH_WORKSPACES)
    block_bytes = config.kv_bytes_per_token(dtype.itemsize) * settings.block_size
    try:
        if device.type == "cpu":
            taken = weights + workspace
            num_blocks = plan_host_blocks(settings, block_bytes, memory.free, taken)
        else:  # needs a GPU
            left = (memory.free - weights, memory.total)
            num_blocks = plan_device_blocks(settings, block_bytes, weights, workspace, left)
    except OutOfMemoryError:
        num_blocks = 0
    return LoadEstimate(device, dtype, context, weights, workspace, block_bytes, memory, num_blocks)


def weights_bytes(
    facts: ModelFacts, kept: WeightsKept, device: torch.device, dtype: torch.dtype
) -> int:
    """Bytes that the weights will take in memory."""
    config = facts.config
    heads = 0
    if config.qk_norm:
        # Each head gets its own copy.
        count = config.num_heads + config.num_kv_heads - 2
        heads = count * config.head_dim * config.num_layers * dtype.itemsize
    if kept is not WeightsKept.EXPANDED:
        return heads + kept_bytes(facts.tensors, config, kept, device, dtype)
    total = sum(tensor.num_elements for tensor in needed_tensors(facts.tensors, config))
    if config.tie_word_embeddings and can_pack(device, dtype):
        # Packed for products, the embedding can no longer be looked up: it is there twice.
        total += config.vocab_size * config.hidden_size
    return heads + total * dtype.itemsize


def step_bytes(config: ModelConfig, num_tokens: int, dtype: torch.dtype) -> int:
    """Bytes that a prefill of ``num_tokens`` takes at its peak, which comes in the feed-forward
    part, in a norm, in attention, or where the logits are.

    Counted in values a token, as the plain operations keep them: the residual and what is added to
    it, the normed input, and what the layer before has left; then the gate with its two halves, the
    float32 copies of a norm, or queries and keys with the copies that norm and rotate them.
    """
    size = dtype.itemsize
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    kept = queries + 2 * config.head_dim * _num_rotations(config)
    feed_forward = 3 * hidden + 4 * inner
    norm = 3 * hidden + inner + (3 if size > 2 else 6) * hidden
    copies = (4 if config.qk_norm else 3) * (queries + keys)
    attention = 2 * hidden + inner + (queries + 2 * keys) + copies
    layer = (kept + max(feed_forward, norm, attention)) * num_tokens * size
    drawn = 0 if dtype == torch.float32 else 4
    rows = min(LOGIT_ROWS, num_tokens)
    logits = rows * config.vocab_size * (size + drawn)
    windows = {window for window in config.windows if window is not None}
    masks = sum(window < num_tokens for window in windows) * num_tokens**2 * size
    return max(layer, logits) + masks


def _num_rotations(config: ModelConfig) -> int:
    return 1 if config.local_rope_theta is None else 2


def _tables_bytes(config: ModelConfig, context: int, dtype: torch.dtype) -> int:
    return _num_rotations(config) * 2 * context * config.head_dim * dtype.itemsize


def _memory(device: torch.device, held: Held) -> Memory:
    given_back = held.nbytes if held.device == str(device) else 0
    if device.type == "cpu":
        memory = psutil.virtual_memory()
        return Memory(min(memory.available + given_back, memory.total), memory.total)
    free, total = torch.cuda.mem_get_info(device)  # needs a GPU
    return Memory(min(free + given_back, total), total)  # needs a GPU
