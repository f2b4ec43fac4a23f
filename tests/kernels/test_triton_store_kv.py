"""The Triton KV write: the written slots change, and nothing else does."""

import pytest
import torch

triton = pytest.importorskip("triton")

from kernels.reference.store_kv import store_kv as reference  # noqa: E402
from kernels.store_kv import store_kv  # noqa: E402 - only where Triton is


def _bits(tensor):
    return tensor.cpu().view(torch.uint8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("kv_heads", "head_dim"), [(3, 64), (1, 80), (8, 128)])
def test_pool_equals_the_reference_bit_for_bit(dtype, kv_heads, head_dim, device):
    shape = (7, 16, kv_heads, head_dim)
    pool = torch.randn(shape).to(dtype).to(device)
    pools = [pool.clone() for _ in range(4)]
    key = torch.randn((5, kv_heads, head_dim)).to(dtype).to(device)
    value = torch.randn((5, kv_heads, head_dim)).to(dtype).to(device)
    slots = torch.tensor([17, -1, 111, 0, -1], device=device)
    store_kv(key, value, pools[0], pools[1], slots)
    reference(key, value, pools[2], pools[3], slots)
    assert torch.equal(_bits(pools[0]), _bits(pools[2]))
    assert torch.equal(_bits(pools[1]), _bits(pools[3]))
    assert torch.equal(pools[0].view(112, -1)[17], key[0].flatten())


def test_keys_and_values_may_be_slices_of_one_product(device):
    packed = torch.randn((4, 5, 64), device=device)
    pools = [torch.zeros((2, 8, 2, 64), device=device) for _ in range(2)]
    store_kv(packed[:, 1:3], packed[:, 3:], pools[0], pools[1], torch.arange(4, device=device))
    assert torch.equal(pools[0][0, :4], packed[:, 1:3])
    assert torch.equal(pools[1][0, :4], packed[:, 3:])


def test_layouts_that_do_not_fit_are_refused(device):
    key = torch.zeros((2, 3, 64), device=device)
    pool = torch.zeros((2, 8, 3, 64), device=device)
    slots = torch.zeros(2, dtype=torch.int64, device=device)
    with pytest.raises(ValueError, match="do not fit"):
        store_kv(key, key[:, :2], pool, pool, slots)
    with pytest.raises(ValueError, match="slots for 2 tokens"):
        store_kv(key, key, pool, pool, slots[:1])
    with pytest.raises(ValueError, match="caches must be contiguous"):
        store_kv(key, key, pool.transpose(0, 1).contiguous().transpose(0, 1), pool, slots)
    with pytest.raises(ValueError, match="heads of a token"):
        store_kv(key.transpose(0, 1).contiguous().transpose(0, 1), key, pool, pool, slots)
