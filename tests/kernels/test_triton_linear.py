"""The Triton product for few rows and what is fused with it, against float64."""

import itertools

import pytest
import torch

from tests.helpers.kernel_cases import DTYPES, excess, names, randn, spaced

triton = pytest.importorskip("triton")

from kernels.dependent_launch import can_pdl  # noqa: E402 - only where Triton is
from kernels.launch_linear import (  # noqa: E402
    DotLaunch,
    HeldLaunch,
    VectorLaunch,
    linear_launch,
)
from kernels.reference.rms_norm import add_rms_norm  # noqa: E402
from kernels.reference.skinny_linear import skinny_linear as reference  # noqa: E402
from kernels.skinny_linear import linear_add_rms_norm, skinny_linear  # noqa: E402

# The gate multiplies two results, each with its error.
BOUND = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
WHOLE = [
    VectorLaunch(8, 4),
    DotLaunch(16, 16, 32, 1, 4, 2, False),
    DotLaunch(16, 32, 64, 1, 4, 3, True),
    HeldLaunch(8, 16, 256, 1, 2),
    HeldLaunch(16, 32, 256, 1, 4),
]
SPLIT = [
    *WHOLE,
    DotLaunch(16, 16, 32, 3, 4, 2, True),
    DotLaunch(16, 16, 32, 8, 4, 2, False),
    HeldLaunch(16, 16, 64, 3, 2),
    HeldLaunch(16, 16, 32, 5, 1),
]
# (rows, outputs, inner): no tile is full, and one split is empty.
SIZES = [(1, 24, 96), (3, 33, 72), (17, 48, 160)]


def cases(launches):
    """Every launch with every size, but no launch for few rows with many."""
    return [
        pytest.param(launch, size, id=f"{size}-{launch}".replace(" ", ""))
        for launch in launches
        for size in SIZES
        if size[0] <= 4 or not isinstance(launch, VectorLaunch)
    ]


def make(rows, outputs, inner, dtype, device, *, gate=None):
    parts = outputs * (2 if gate else 1)
    return {
        "x": randn((rows, inner), dtype, device),
        "weight": (torch.randn((parts, inner)) / inner**0.5).to(dtype).to(device),
        "bias": randn((parts,), dtype, device),
        "residual": randn((rows, outputs), dtype, device),
        "norm_weight": randn((inner,), dtype, device),
    }


def wide(parts):
    return {name: value.cpu().double() for name, value in parts.items()}


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@pytest.mark.parametrize(("launch", "size"), cases(WHOLE))
@pytest.mark.parametrize(
    ("given", "gate"),
    [
        ((), None),
        (("bias", "residual"), None),
        (("norm_weight",), "silu"),
        (("bias", "norm_weight", "residual"), "gelu_tanh"),
    ],
    ids=names,
)
def test_product_and_what_is_fused_with_it(size, launch, given, gate, dtype, device):
    parts = make(*size, dtype, device, gate=gate)
    parts = {name: parts[name] for name in ("x", "weight", *given)}
    out = skinny_linear(**parts, gate=gate, eps=1e-6, launch=launch)
    assert out.dtype == dtype
    assert excess(out, reference(**wide(parts), gate=gate, eps=1e-6)) <= BOUND[dtype]


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@pytest.mark.parametrize(("launch", "size"), cases([*SPLIT, None]))
def test_product_with_sum_and_norm_after_it(size, launch, dtype, device):
    parts = make(*size, dtype, device)
    norm_weight = randn((size[1],), dtype, device)
    args = (parts["x"], parts["weight"], parts["bias"], parts["residual"])
    before = parts["residual"].clone()
    total, normed = linear_add_rms_norm(*args, norm_weight, 1e-6, launch=launch)
    assert torch.equal(parts["residual"], before)
    double = wide(parts)
    product = reference(double["x"], double["weight"], double["bias"])
    expected, _ = add_rms_norm(product, double["residual"], norm_weight.cpu().double(), 1e-6)
    assert excess(total, expected) <= BOUND[dtype]
    # The norm is that of the sum as it was stored.
    zero = torch.zeros_like(expected)
    stored = total.cpu().double()
    _, wanted = add_rms_norm(zero, stored, norm_weight.cpu().double(), 1e-6)
    # Without a launch the library's product is rounded before the sum.
    assert excess(normed, wanted) <= BOUND[dtype]


@pytest.mark.parametrize("launch", SPLIT, ids=repr)
def test_same_bits_every_time(launch, device):
    parts = make(5, 48, 160, torch.float32, device)
    norm_weight = randn((48,), torch.float32, device)
    args = (parts["x"], parts["weight"], None, parts["residual"], norm_weight, 1e-6)
    first, second = (linear_add_rms_norm(*args, launch=launch) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


@pytest.mark.parametrize("launch", WHOLE, ids=repr)
def test_a_row_does_not_depend_on_the_others_nor_on_how_many_there_are(launch, device):
    parts = make(6, 48, 160, torch.float32, device)
    x, weight = parts["x"], parts["weight"]
    whole = skinny_linear(x, weight, launch=launch)
    assert torch.equal(skinny_linear(x[4:5], weight, launch=launch), whole[4:5])
    x[:4] = float("nan")
    assert torch.equal(skinny_linear(x, weight, launch=launch)[4:], whole[4:])


@pytest.mark.parametrize("inner", [72, 96])
@pytest.mark.parametrize("launch", SPLIT, ids=repr)
def test_nothing_outside_the_operands_is_read(launch, inner, device):
    parts = make(3, 33, inner, torch.float32, device)
    x, residual = (spaced(size, torch.float32, device) for size in ((3, inner), (3, 33)))
    padded = torch.full((40, inner), float("nan"), device=device)
    padded[:33] = parts["weight"]
    norm_weight = randn((33,), torch.float32, device)
    out = linear_add_rms_norm(x, padded[:33], None, residual, norm_weight, 1e-6, launch=launch)
    wanted = linear_add_rms_norm(
        x.contiguous(), parts["weight"], None, residual.contiguous(), norm_weight, 1e-6,
        launch=launch,
    )  # fmt: skip
    assert torch.equal(out[0], wanted[0])
    assert torch.equal(out[1], wanted[1])


@pytest.mark.parametrize("rows", [1, 2, 3, 17, 70])
def test_whatever_launch_is_chosen_fits(rows, device):
    parts = make(rows, 96, 64, torch.float32, device, gate="silu")
    out = skinny_linear(parts["x"], parts["weight"], gate="silu")
    double = wide(parts)
    assert excess(out, reference(double["x"], double["weight"], gate="silu")) <= 3e-6


@pytest.mark.gpu
@pytest.mark.parametrize("launch", WHOLE, ids=repr)
def test_a_dependent_launch_reads_what_the_kernel_before_has_written(launch, device):
    if not can_pdl(device):
        pytest.skip("this GPU has no dependent launch")
    x = randn((4, 256), torch.bfloat16, device)
    weights = (torch.randn((20, 256, 256)) / 16).to(torch.bfloat16).to(device)

    def chain(pdl):
        y = x
        for weight in weights:
            y = skinny_linear(y, weight, launch=launch, pdl=pdl)
        return y

    assert torch.equal(chain(True), chain(False))


def test_no_rows(device):
    parts = make(3, 40, 64, torch.float32, device)
    none, weight = parts["x"][:0], parts["weight"]
    assert skinny_linear(none, weight).shape == (0, 40)
    args = (none, weight, None, parts["residual"][:0], parts["bias"], 1e-6)
    assert [part.shape for part in linear_add_rms_norm(*args)] == [(0, 40), (0, 40)]


def test_what_does_not_fit_is_refused(device):
    parts = make(3, 40, 64, torch.float32, device)
    x, weight, residual = parts["x"], parts["weight"], parts["residual"]
    with pytest.raises(ValueError, match=r"x \(3, 63\), weight \(40, 64\) do not fit"):
        skinny_linear(x[:, :63], weight)
    with pytest.raises(ValueError, match=r"bias \(39,\)"):
        skinny_linear(x, weight, parts["bias"][:39])
    with pytest.raises(ValueError, match=r"residual \(3, 40\) do not fit; gate: silu"):
        skinny_linear(x, weight, residual=residual, gate="silu")
    with pytest.raises(ValueError, match="'relu' is unknown"):
        skinny_linear(x, weight, gate="relu")
    with pytest.raises(ValueError, match="weight must be contiguous"):
        skinny_linear(x, weight.T.contiguous().T)
    with pytest.raises(ValueError, match="last dimension of x must be contiguous"):
        skinny_linear(x.T.contiguous().T, weight)
    with pytest.raises(ValueError, match="3 splits, whose sums nobody adds"):
        skinny_linear(x, weight, launch=DotLaunch(16, 16, 32, 3, 4, 2, True))
    with pytest.raises(ValueError, match="does not reach 64 inner elements"):
        skinny_linear(x, weight, launch=HeldLaunch(8, 16, 32, 1, 1))


@pytest.mark.parametrize("rows", [1, 3, 4, 8, 9, 16, 17, 64, 128, 129])
def test_every_product_that_is_not_the_librarys_is_cut_up_whole(rows):
    cpu = torch.device("cpu")
    sizes = (64, 576, 960, 1024, 1536, 2048, 2560, 3072, 8192)
    for outputs, inner, gated, joined in itertools.product(sizes, sizes, (False, True), (0, 1)):
        if gated and joined:
            continue
        launch = linear_launch(rows, outputs, inner, gated, bool(joined), torch.bfloat16, cpu)
        if not isinstance(launch, HeldLaunch):
            assert not (launch and 2 < rows <= 16 and inner <= 2048), (outputs, inner, joined)
            continue
        assert rows <= 16
        assert launch.depth * launch.splits >= inner
        assert launch.depth * (launch.splits - 1) < inner
        assert launch.splits == 1 or joined
        assert launch.depth % (32 * launch.num_warps) == 0
        held = launch.outputs * launch.depth * (2 if gated else 1)
        assert held <= 256 * 32 * launch.num_warps, "more weights than registers"
