"""Triton normalisation and gate against float64."""

import pytest
import torch

from tests.helpers.kernel_cases import BOUND, DTYPES, excess, names, randn, spaced

triton = pytest.importorskip("triton")

from kernels.gate_and_mul import gelu_and_mul, silu_and_mul  # noqa: E402 - only where Triton is
from kernels.reference.gelu_and_mul import gelu_and_mul as gelu_reference  # noqa: E402
from kernels.reference.silu_and_mul import silu_and_mul as silu_reference  # noqa: E402
from kernels.rms_norm import add_rms_norm, rms_norm  # noqa: E402

# Not all powers of two, one and several rows.
SIZES = [(1, 576), (5, 48), (3, 1024), (2, 2560)]


def expected_norm(x, weight, eps):
    wide = x.cpu().double()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return wide * scale * weight.cpu().double()


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@pytest.mark.parametrize("size", SIZES, ids=names)
def test_rms_norm(size, dtype, device):
    x, weight = randn(size, dtype, device), randn(size[-1:], dtype, device)
    out = rms_norm(x, weight, 1e-5)
    assert out.dtype == dtype
    assert excess(out, expected_norm(x, weight, 1e-5)) <= BOUND[dtype]


@pytest.mark.parametrize("size", [1e-4, 1e4])
def test_rms_norm_of_small_and_large_values(size, device):
    x = randn((4, 576), torch.float32, device) * size
    weight = randn((576,), torch.float32, device)
    assert excess(rms_norm(x, weight, 1e-6), expected_norm(x, weight, 1e-6)) <= 2e-6


def test_rms_norm_keeps_the_shape_of_heads(device):
    x, weight = randn((2, 3, 80), torch.float32, device), randn((80,), torch.float32, device)
    out = rms_norm(x, weight, 1e-6)
    assert out.shape == (2, 3, 80)
    assert excess(out, expected_norm(x, weight, 1e-6)) <= 2e-6


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=names)
def test_add_rms_norm(size, inplace, dtype, device):
    x, residual = randn(size, dtype, device), randn(size, dtype, device)
    weight = randn(size[-1:], dtype, device)
    before = residual.clone()
    total, out = add_rms_norm(x, residual, weight, 1e-5, inplace=inplace)
    assert torch.equal(total, x + before)
    assert (total.data_ptr() == residual.data_ptr()) == inplace
    assert inplace or torch.equal(residual, before)
    # What is normalised is the sum as it was stored.
    assert excess(out, expected_norm(total, weight, 1e-5)) <= BOUND[dtype]


def test_rows_may_lie_apart_and_nothing_around_them_is_read(device):
    x = spaced((5, 48), torch.float32, device)
    residual = spaced((5, 48), torch.float32, device)
    weight = randn((48,), torch.float32, device)
    assert torch.equal(rms_norm(x, weight, 1e-5), rms_norm(x.contiguous(), weight, 1e-5))
    total, out = add_rms_norm(x, residual, weight, 1e-5, inplace=True)
    assert total.data_ptr() == residual.data_ptr()
    assert excess(out, expected_norm(total, weight, 1e-5)) <= 2e-6
    around = residual.as_strided((5, 16), (64, 1), 48)
    assert bool(around.isnan().all())


def test_a_row_does_not_depend_on_the_others(device):
    x, weight = randn((6, 576), torch.float32, device), randn((576,), torch.float32, device)
    whole = rms_norm(x, weight, 1e-5)
    assert torch.equal(rms_norm(x[4:5], weight, 1e-5), whole[4:5])
    x[:4] = float("nan")
    assert torch.equal(rms_norm(x, weight, 1e-5)[4:], whole[4:])


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@pytest.mark.parametrize("size", [(1, 96), (5, 1536), (40, 200)], ids=names)
@pytest.mark.parametrize(
    ("gate", "reference"), [(silu_and_mul, silu_reference), (gelu_and_mul, gelu_reference)]
)
def test_gates(gate, reference, size, dtype, device):
    gate_up = randn((size[0], 2 * size[1]), dtype, device)
    out = gate(gate_up)
    assert out.shape == size
    assert excess(out, reference(gate_up.cpu().double())) <= BOUND[dtype]


def test_gate_of_large_negative_values_is_zero(device):
    gate_up = torch.tensor([[-200.0, 200.0, 1.0, 1.0]], device=device)
    assert silu_and_mul(gate_up).tolist() == [[0.0, 200.0]]
    assert gelu_and_mul(gate_up).tolist() == [[0.0, 200.0]]


def test_gate_of_rows_that_lie_apart(device):
    gate_up = spaced((5, 96), torch.float32, device)
    assert torch.equal(silu_and_mul(gate_up), silu_and_mul(gate_up.contiguous()))


def test_no_rows(device):
    weight = torch.ones(48, device=device)
    assert rms_norm(weight[None][:0], weight, 1e-5).shape == (0, 48)
    assert silu_and_mul(weight[None][:0]).shape == (0, 24)


def test_what_does_not_fit_is_refused(device):
    x, weight = torch.ones((4, 48), device=device), torch.ones(48, device=device)
    with pytest.raises(ValueError, match=r"x \(4, 48\) and weight \(47,\) do not fit"):
        rms_norm(x, weight[:47], 1e-5)
    with pytest.raises(ValueError, match="last dimension of x must be contiguous"):
        rms_norm(x.T.contiguous().T, weight, 1e-5)
    with pytest.raises(ValueError, match="rows of x must be evenly apart"):
        rms_norm(torch.ones((2, 3, 48), device=device).transpose(0, 1), weight, 1e-5)
    with pytest.raises(ValueError, match=r"residual \(3, 48\) do not fit"):
        add_rms_norm(x, x[:3], weight, 1e-5)
    with pytest.raises(ValueError, match="two contiguous halves"):
        silu_and_mul(x[:, :47])
