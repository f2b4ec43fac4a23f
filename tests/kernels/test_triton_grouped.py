"""The Triton product with grouped weights, against float64."""

import weakref

import pytest
import torch

from tests.helpers.kernel_cases import DTYPES, excess, names, randn, spaced

triton = pytest.importorskip("triton")

from kernels.dependent_launch import can_pdl  # noqa: E402 - where Triton is
from kernels.grouped_linear import expand_grouped, grouped_linear  # noqa: E402 - where Triton is
from kernels.launch_grouped import (  # noqa: E402
    GroupedLaunch,
    TensorLaunch,
    VectorLaunch,
    fixed_grouped_launch,
)
from kernels.reference.grouped_linear import expand_grouped as expand_reference  # noqa: E402
from kernels.reference.grouped_linear import grouped_linear as reference  # noqa: E402
from kernels.reference.grouped_linear import unpack_codes, weave_codes  # noqa: E402

BOUND = {torch.float32: 3e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
LAUNCHES = [GroupedLaunch(16, 16, 64, 4, 2), GroupedLaunch(32, 16, 128, 4, 3), None]
# Without tensor cores; bfloat16 is a matter of bits there, which the interpreter can do.
VECTORS = [VectorLaunch(1, 8, 32, 1), VectorLaunch(2, 4, 64, 2), VectorLaunch(4, 4, 32, 1)]
FORMS = [(4, 32), (8, 32), (8, 16)]
# (rows, outputs, inner): no tile is full.
SIZES = [(1, 24, 96), (3, 33, 160), (19, 40, 64)]


def make(rows, outputs, inner, form, dtype, device):
    bits, group = form
    codes = torch.randint(0, 256, (outputs, inner * bits // 8), dtype=torch.uint8)
    scale = (0.5 + torch.rand(outputs, inner // group)) / inner**0.5 / 2**bits
    minimum = -(2 ** (bits - 1)) * scale + 0.1 * torch.randn(scale.shape) / inner**0.5
    return {
        "x": randn((rows, inner), dtype, device),
        "codes": codes.to(device),
        "scale": scale.half().to(device),
        "minimum": minimum.half().to(device),
        "bias": randn((outputs,), dtype, device),
        "residual": randn((rows, outputs), dtype, device),
    }


def wide(parts):
    """On the CPU, in float64 all but the codes."""
    moved = {name: part.cpu() for name, part in parts.items()}
    return {name: part if name == "codes" else part.double() for name, part in moved.items()}


@pytest.mark.parametrize("dtype", DTYPES, ids=names)
@pytest.mark.parametrize("given", [(), ("bias", "residual")], ids=names)
@pytest.mark.parametrize("form", FORMS, ids=names)
@pytest.mark.parametrize("size", SIZES, ids=names)
@pytest.mark.parametrize("launch", LAUNCHES, ids=names)
def test_product(launch, size, form, given, dtype, device):
    parts = make(*size, form, dtype, device)
    parts = {name: parts[name] for name in ("x", "codes", "scale", "minimum", *given)}
    before = parts["residual"].clone() if "residual" in parts else None
    out = grouped_linear(**parts, bits=form[0], launch=launch)
    assert out.dtype == dtype
    assert excess(out, reference(**wide(parts), bits=form[0])) <= BOUND[dtype]
    assert before is None or torch.equal(before, parts["residual"])


FEW = [
    # No tile is full, but for those of the last size.
    ((1, 10, 96), ()),
    ((3, 9, 160), ("bias", "residual")),
    ((5, 5, 1056), ()),
    ((4, 8, 2048), ("bias", "residual")),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=names)
@pytest.mark.parametrize("form", FORMS, ids=names)
@pytest.mark.parametrize(("size", "given"), FEW, ids=names)
@pytest.mark.parametrize("launch", VECTORS, ids=names)
def test_product_of_few_rows(launch, size, form, given, dtype, device):
    parts = make(*size, form, dtype, device)
    parts = {name: parts[name] for name in ("x", "codes", "scale", "minimum", *given)}
    out = grouped_linear(**parts, bits=form[0], launch=launch)
    assert out.dtype == dtype
    assert excess(out, reference(**wide(parts), bits=form[0])) <= BOUND[dtype] / 2


# Without the last, no tile is full, and a warp's four runs are not.
TENSORS = [
    (TensorLaunch(8, 16, 1, True), (3, 19, 96), ("bias",)),
    (TensorLaunch(8, 32, 2, False), (5, 33, 352), ()),
    (TensorLaunch(8, 16, 1, False), (16, 17, 64), ("residual",)),
    (TensorLaunch(16, 16, 2, True), (33, 7, 96), ("bias", "residual")),
    (TensorLaunch(32, 64, 1, True), (64, 70, 96), ()),
    (TensorLaunch(8, 16, 2, True), (8, 16, 512), ("bias", "residual")),
]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=names)
@pytest.mark.parametrize("form", FORMS, ids=names)
@pytest.mark.parametrize(("launch", "size", "given"), TENSORS, ids=names)
def test_product_on_tensor_cores(launch, size, given, form, dtype, device):
    parts = make(*size, form, dtype, device)
    parts = {name: parts[name] for name in ("x", "codes", "scale", "minimum", *given)}
    before = parts["residual"].clone() if "residual" in parts else None
    # The interpreter cannot multiply bfloat16.
    upcast = device.type == "cpu" and dtype == torch.bfloat16
    out = grouped_linear(**parts, bits=form[0], launch=launch, upcast=upcast)
    assert out.dtype == dtype
    assert excess(out, reference(**wide(parts), bits=form[0])) <= BOUND[dtype] / 2
    assert before is None or torch.equal(before, parts["residual"])


def test_codes_on_tensor_cores_are_not_rounded(device):
    """A scale of 1, numbers of 1 and -1: each sum is a whole number that float16 has."""
    for bits in (4, 8):
        codes = torch.randint(0, 256, (16, 64 * bits // 8), dtype=torch.uint8, device=device)
        scale = torch.ones((16, 2), dtype=torch.float16, device=device)
        x = torch.ones((3, 64), dtype=torch.float16, device=device)
        x[:, 1::2] = -1
        launch = TensorLaunch(8, 16, 1, False)
        out = grouped_linear(x, codes, scale, -scale, bits=bits, launch=launch)
        expected = unpack_codes(codes, bits).int()
        assert torch.equal(out[0].int(), (expected[:, ::2] - expected[:, 1::2]).sum(-1).int())


@pytest.mark.parametrize("form", FORMS, ids=names)
def test_rows_in_halves_are_not_multiplied_byte_by_byte(form, device, monkeypatch):
    monkeypatch.setattr("kernels.grouped_linear.grouped_dot_kernel", None)
    for rows in (1, 2, 3, 9):
        parts = make(rows, 24, 576, form, torch.float16, device)
        out = grouped_linear(**parts, bits=form[0])
        assert excess(out, reference(**wide(parts), bits=form[0])) <= BOUND[torch.float16] / 2


@pytest.mark.parametrize("launch", [*VECTORS, TensorLaunch(8, 16, 1, True)], ids=names)
def test_of_few_rows_each_stands_alone_and_nothing_outside_is_read(launch, device):
    """Rows lie apart with NaN between them, and another row is nothing but NaN."""
    parts = make(4, 9, 96, (4, 32), torch.float16, device)
    weight = {"codes": parts["codes"], "minimum": parts["minimum"]}
    scale = torch.full((16, 3), float("nan"), dtype=torch.float16, device=device)
    scale[:9] = parts["scale"]
    weight["scale"] = scale[:9]
    x, residual = (spaced(size, torch.float16, device) for size in ((4, 96), (4, 9)))
    whole = grouped_linear(x, **weight, residual=residual, bits=4, launch=launch)
    assert whole.isfinite().all()
    x[2] = float("nan")
    again = grouped_linear(x, **weight, residual=residual, bits=4, launch=launch)
    assert again[2].isnan().all()
    for row in (0, 1, 3):
        assert torch.equal(again[row], whole[row])


def test_what_cannot_be_read_in_pairs_is_not(device):
    parts = make(2, 24, 96, (4, 32), torch.float32, device)
    weight = {name: parts[name] for name in ("codes", "scale", "minimum")}
    with pytest.raises(ValueError, match=r"float32 with a stride of 96 is not read in pairs"):
        grouped_linear(parts["x"], **weight, bits=4, launch=VECTORS[0])
    odd = torch.zeros((2, 97), dtype=torch.float16, device=device)[:, :96]
    odd.copy_(parts["x"])
    with pytest.raises(ValueError, match=r"float16 with a stride of 97 is not read in pairs"):
        grouped_linear(odd, **weight, bits=4, launch=VECTORS[0])
    # By itself it finds another way.
    expected = reference(**wide({"x": odd, **weight}), bits=4)
    assert excess(grouped_linear(odd, **weight, bits=4), expected) <= BOUND[torch.float16]


def test_the_order_of_codes():
    """Each word has neighbours, those with an odd place in its upper half."""
    four = weave_codes(torch.arange(32, dtype=torch.uint8).view(1, 32) % 16, 4).view(4, 4)
    for word in range(4):
        for byte in range(4):
            element = 8 * word + 4 * (byte % 2) + byte // 2
            assert int(four[word, byte]) == element % 16 + (element + 2) % 16 * 16
    eight = weave_codes(torch.arange(16, dtype=torch.uint8).view(1, 16), 8).view(4, 4)
    for word in range(4):
        for byte in range(4):
            assert int(eight[word, byte]) == 4 * word + 2 * (byte % 2) + byte // 2
    for bits in (4, 8):
        codes = torch.randint(0, 2**bits, (3, 96), dtype=torch.uint8)
        assert torch.equal(unpack_codes(weave_codes(codes, bits), bits), codes)


@pytest.mark.parametrize("form", FORMS, ids=names)
def test_expansion_has_the_references_values(form, device):
    parts = make(1, 5, 1056, form, torch.float32, device)
    args = (parts["codes"], parts["scale"], parts["minimum"], form[0], torch.float32)
    expected = expand_reference(*(part.cpu() if isinstance(part, torch.Tensor) else part for part in args))  # fmt: skip  # noqa: E501
    torch.testing.assert_close(expand_grouped(*args).cpu(), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("form", FORMS, ids=names)
def test_many_rows_are_multiplied_with_the_weight_expanded_piece_by_piece(
    form, device, monkeypatch
):
    monkeypatch.setattr("kernels.grouped_linear.EXPANDED_ELEMENTS", 7 * 96)
    pieces = []

    def watched(*args):
        assert all(piece() is None for piece in pieces), "two pieces at once"
        weight = expand_grouped(*args)
        pieces.append(weakref.ref(weight))
        return weight

    monkeypatch.setattr("kernels.grouped_linear.expand_grouped", watched)
    parts = make(40, 24, 96, form, torch.float32, device)
    out = grouped_linear(**parts, bits=form[0])
    assert len(pieces) == 4
    assert excess(out, reference(**wide(parts), bits=form[0])) <= BOUND[torch.float32]


@pytest.mark.parametrize("form", FORMS, ids=names)
def test_a_row_does_not_depend_on_the_others_nor_on_how_many_there_are(form, device):
    parts = make(20, 40, 96, form, torch.float32, device)
    weight = {name: parts[name] for name in ("codes", "scale", "minimum")}
    launch = fixed_grouped_launch(form[0])
    whole = grouped_linear(parts["x"], **weight, bits=form[0], launch=launch)
    one = grouped_linear(parts["x"][17:18], **weight, bits=form[0], launch=launch)
    assert torch.equal(one, whole[17:18])
    parts["x"][:17] = float("nan")
    again = grouped_linear(parts["x"], **weight, bits=form[0], launch=launch)
    assert torch.equal(again[17:], whole[17:])


def test_nothing_outside_the_operands_is_read(device):
    parts = make(3, 33, 96, (4, 32), torch.float32, device)
    x, residual = (spaced(size, torch.float32, device) for size in ((3, 96), (3, 33)))
    scale = torch.full((40, 3), float("nan"), dtype=torch.float16, device=device)
    scale[:33] = parts["scale"]
    weight = {"codes": parts["codes"], "minimum": parts["minimum"]}
    launch = GroupedLaunch(16, 16, 64, 4, 2)
    out = grouped_linear(x, scale=scale[:33], **weight, residual=residual, bits=4, launch=launch)
    plain = grouped_linear(
        x.contiguous(), scale=parts["scale"], **weight, residual=residual.contiguous(), bits=4,
        launch=launch,
    )  # fmt: skip
    assert torch.equal(out, plain)


def test_no_rows(device):
    parts = make(3, 40, 64, (4, 32), torch.float32, device)
    weight = {name: parts[name] for name in ("codes", "scale", "minimum")}
    assert grouped_linear(parts["x"][:0], **weight, bits=4).shape == (0, 40)


def test_what_does_not_fit_is_refused(device):
    parts = make(3, 40, 64, (4, 32), torch.float32, device)
    weight = {name: parts[name] for name in ("codes", "scale", "minimum")}
    with pytest.raises(ValueError, match=r"x \(3, 63\).*do not fit in 4 bits"):
        grouped_linear(parts["x"][:, :63], **weight, bits=4)
    with pytest.raises(ValueError, match="codes of 5 bits"):
        grouped_linear(parts["x"], **weight, bits=5)
    with pytest.raises(ValueError, match=r"bias \(39,\)"):
        grouped_linear(parts["x"], **weight, bias=parts["bias"][:39], bits=4)
    with pytest.raises(ValueError, match="must be contiguous"):
        grouped_linear(parts["x"], **(weight | {"scale": weight["scale"].T.contiguous().T}), bits=4)


OF_A_MODEL = [(rows, torch.bfloat16) for rows in (1, 2, 3, 8, 16, 17, 33, 64, 300)]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "dtype"), [*OF_A_MODEL, (16, torch.float32), (16, torch.float16)], ids=names
)
@pytest.mark.parametrize("form", FORMS, ids=names)
def test_products_of_a_models_size(rows, form, dtype, device):
    """The launches that the engine chooses; a chain of them, each begun before the last has ended.

    Sums of some thousand products: their error grows with the root of that.
    """
    bound = 2 * BOUND[dtype] if dtype == torch.float32 else BOUND[dtype]
    for outputs, inner in ((9000, 2560), (4096, 896)):
        parts = make(rows, outputs, inner, form, dtype, device)
        out = grouped_linear(**parts, bits=form[0], pdl=can_pdl(device))
        again = grouped_linear(**parts, bits=form[0], pdl=can_pdl(device))
        assert torch.equal(out, again)
        assert excess(out, reference(**wide(parts), bits=form[0])) <= bound
