"""The cases of the kernel benchmark: each of our kernels beside its peers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType

import torch
from torch.nn import functional as F

from kernels.decode_plan import plan_decode
from kernels.paged_decode import paged_decode
from kernels.paged_prefill import paged_prefill
from kernels.shared_prefix_decode import plan_shared_prefix_decode, shared_prefix_decode
from kernels.store_kv import store_kv
from tests.benchmarks.attention_cases import (
    QWEN3_06B,
    QWEN3_8B,
    SMOLLM2,
    Heads,
    PagedCase,
    paged_case,
)
from tests.benchmarks.draw_cases import draw_case
from tests.benchmarks.glue_cases import SHAPES, Product
from tests.benchmarks.options import Options
from tests.benchmarks.product_cases import product_case
from tests.benchmarks.report import Row

Case = tuple[Row, int, dict[str, Callable[[int], object]]]
"""Facts of the row (``bytes`` moved, ``flop``), rotations, and the calls by name, ours first."""

_SDPA, _FA3 = "SDPA on gathered KV", "FlashAttention-3"
_DECODES = (
    *((QWEN3_06B, 1, n) for n in (512, 4096, 32_768)),
    *((QWEN3_06B, 8, n) for n in (512, 4096, 32_768)),
    *((QWEN3_06B, b, n) for b in (16, 17) for n in (512, 4096)),
    *((QWEN3_06B, 64, n) for n in (512, 4096, 8192, 9216)),
    *((QWEN3_8B, b, 4096) for b in (1, 64)),
    *((SMOLLM2, b, 512) for b in (1, 64)),
)
_PREFILLS = ((512, 0), (2048, 0), (8192, 0), (512, 1536), (512, 7680))
_SHARED = ((4, 512), (8, 2048), (8, 8192), (16, 2048), (16, 8192), (64, 2048), (64, 8192))
_SHARED_OWN = 512
_STORES = (1, 8, 64, 2048)
_PRODUCTS = ("qkv", "o", "gate_up", "down", "lm_head", "8b_qkv", "8b_o", "8b_gate_up")
_ROWS, _VOCAB_SIZE = (1, 8, 64, 256), 151_936


class Cases:
    """Makes the cases for one device. ``peer``: FlashAttention-3, or None."""

    def __init__(self, options: Options, device: torch.device, peer: ModuleType | None) -> None:
        self._device = device
        self._peer = peer
        self._block_size = options.block_size
        # The interpreter cannot multiply bfloat16.
        self._dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._num_rotations = 0 if device.type == "cuda" else 2

    def decode(self, heads: Heads, batch: int, context: int) -> Case:
        """One new token of each sequence over its own pages."""
        case = self._paged(heads, batch, context, batch)
        plan = plan_decode(case.lengths, heads.query, heads.kv, heads.dim, context)
        k_cache, v_cache = case.caches

        def ours(i: int) -> object:
            table = case.tables[i]
            return paged_decode(
                case.query, k_cache, v_cache, table, case.lengths, case.scale, plan=plan
            )

        dense = [case.gathered(i) for i in range(len(case.tables))]
        query = case.query.unsqueeze(2)

        def sdpa(i: int) -> object:
            return F.scaled_dot_product_attention(query, *dense[i], enable_gqa=True)

        calls = {"paged_decode": ours, _SDPA: sdpa}
        if self._peer is not None:
            calls[_FA3] = self._fa3(case, 1)
        moved = batch * context * heads.kv_bytes(self._dtype.itemsize)
        facts = {"op": "decode", "heads": heads.name, "batch": batch, "context": context}
        return facts | {"bytes": moved}, len(case.tables), calls

    def prefill(self, heads: Heads, tokens: int, start: int) -> Case:
        """A chunk of one sequence over its pages, some of which were cached."""
        context = start + tokens
        case = self._paged(heads, 1, context, tokens)
        k_cache, v_cache = case.caches

        def ours(i: int) -> object:
            return paged_prefill(case.query, k_cache, v_cache, case.tables[i][0], start, case.scale)

        dense = [case.gathered(i) for i in range(len(case.tables))]
        query = case.query.transpose(0, 1).unsqueeze(0)
        # Without a cached part torch has a faster way than a mask.
        seen = torch.ones(tokens, context, dtype=torch.bool, device=self._device).tril(start)
        mask = seen if start else None

        def sdpa(i: int) -> object:
            out = F.scaled_dot_product_attention(
                query, *dense[i], attn_mask=mask, is_causal=mask is None, enable_gqa=True
            )
            return out.transpose(1, 2)

        calls = {"paged_prefill": ours, _SDPA: sdpa}
        if self._peer is not None:
            calls[_FA3] = self._fa3(case, tokens)
        pairs = tokens * start + tokens * (tokens + 1) // 2
        facts = {"op": "prefill", "heads": heads.name, "tokens": tokens, "cached": start}
        facts["flop"] = 4 * heads.query * heads.dim * pairs
        return facts, len(case.tables), calls

    def shared(self, heads: Heads, batch: int, prefix: int, own: int) -> Case:
        """Sequences with one prefix; beside our plain kernel on the same shared blocks."""
        context = prefix + own
        case = self._paged(heads, batch, context, batch, shared=prefix)
        k_cache, v_cache = case.caches
        members = torch.arange(batch, dtype=torch.int32, device=self._device).view(1, batch)
        blocks = torch.tensor([prefix // case.block_size], dtype=torch.int32, device=self._device)
        sizes = (heads.query, heads.kv, heads.dim, context)
        plan = plan_shared_prefix_decode(case.lengths, members, blocks, case.block_size, *sizes)
        plain_plan = plan_decode(case.lengths, *sizes)

        def ours(i: int) -> object:
            table = case.tables[i]
            return shared_prefix_decode(
                case.query, k_cache, v_cache, table, case.lengths, members, blocks, case.scale,
                plan=plan,
            )  # fmt: skip

        def plain(i: int) -> object:
            table = case.tables[i]
            return paged_decode(
                case.query, k_cache, v_cache, table, case.lengths, case.scale, plan=plain_plan
            )

        calls = {"shared_prefix_decode": ours, "paged_decode": plain}
        if self._peer is not None:
            calls[_FA3] = self._fa3(case, 1)
        moved = (prefix + batch * own) * heads.kv_bytes(self._dtype.itemsize)
        facts = {"op": "shared", "heads": heads.name, "batch": batch, "context": context}
        return facts | {"prefix": prefix, "bytes": moved}, len(case.tables), calls

    def store(self, heads: Heads, tokens: int) -> Case:
        """Keys and values of new tokens into scattered slots; read once, written once."""
        # Slots of one rotation; the pool itself is what is too large for the cache.
        case = self._paged(heads, 1, max(tokens, self._block_size), tokens)
        k_cache, v_cache = case.caches
        shape = (tokens, heads.kv, heads.dim)
        key, value = (torch.randn(shape, dtype=self._dtype, device=self._device) for _ in range(2))
        slots = torch.randperm(k_cache.shape[0] * k_cache.shape[1], device=self._device)
        count = min(len(slots) // tokens, 256)
        parts = [slots[i * tokens : (i + 1) * tokens].contiguous() for i in range(count)]
        k_rows, v_rows = (cache.view(-1, heads.kv, heads.dim) for cache in case.caches)

        def torch_store(i: int) -> object:
            k_rows.index_copy_(0, parts[i], key)
            return v_rows.index_copy_(0, parts[i], value)

        calls: dict[str, Callable[[int], object]] = {
            "store_kv": lambda i: store_kv(key, value, k_cache, v_cache, parts[i]),
            "index_copy_": torch_store,
        }
        facts = {"op": "store", "heads": heads.name, "tokens": tokens}
        facts["bytes"] = 2 * tokens * heads.kv_bytes(self._dtype.itemsize)
        return facts, count, calls

    def _fa3(self, case: PagedCase, rows: int) -> Callable[[int], object]:
        """FlashAttention-3 over the pages, ``rows`` queries of each sequence."""
        assert self._peer is not None
        attend = self._peer.flash_attn_varlen_func
        batch = len(case.lengths)
        ends = torch.arange(0, batch * rows + 1, rows, dtype=torch.int32, device=self._device)
        width = case.tables[0].shape[1] * case.block_size
        return lambda i: attend(
            case.query, *case.caches, rows, ends, width, seqused_k=case.lengths,
            causal=True, block_table=case.tables[i],
        )  # fmt: skip

    def _paged(
        self, heads: Heads, batch: int, context: int, rows: int, shared: int = 0
    ) -> PagedCase:
        return paged_case(
            heads,
            batch,
            context,
            rows,
            block_size=self._block_size,
            device=self._device,
            dtype=self._dtype,
            shared=shared,
            num_rotations=self._num_rotations,
        )


def cases(
    options: Options, device: torch.device, peer: ModuleType | None
) -> Iterator[Callable[[], Case]]:
    """All cases, each made only when it is its turn: together they would not fit into memory."""
    make = Cases(options, device, peer)
    if options.small:
        tiny = Heads("tiny", 4, 2, 16)
        yield partial(make.decode, tiny, 2, 40)
        yield partial(make.prefill, tiny, 8, 16)
        yield partial(make.shared, tiny, 2, 32, 16)
        yield partial(make.store, tiny, 4)
        for filtered in (False, True):
            yield partial(draw_case, 2, 300, filtered, device, torch.float32)
        yield partial(product_case, "tiny", Product(64, 48, joined=True), 2, device, torch.float32)
        return
    for heads, batch, context in _DECODES:
        if options.batches and batch not in options.batches:
            continue
        if options.contexts and context not in options.contexts:
            continue
        yield partial(make.decode, heads, batch, context)
    for tokens, start in _PREFILLS:
        yield partial(make.prefill, QWEN3_06B, tokens, start)
    for batch, prefix in _SHARED:
        yield partial(make.shared, QWEN3_06B, batch, prefix, _SHARED_OWN)
    for tokens in _STORES:
        yield partial(make.store, QWEN3_06B, tokens)
    for rows in _ROWS:
        for filtered in (False, True):
            yield partial(draw_case, rows, _VOCAB_SIZE, filtered, device, torch.bfloat16)
    for name in _PRODUCTS:
        for rows in _ROWS:
            yield partial(product_case, name, SHAPES[name], rows, device, torch.bfloat16)
