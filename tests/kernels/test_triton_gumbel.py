"""The kernels' noise, and who wins with it where float32 does not tell."""

import pytest
import torch

triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402 - only where Triton is

from kernels.gumbel_noise import MARGIN, gumbel, rough_gumbel  # noqa: E402
from kernels.reference.gumbel import GROUP, GROUPS, TOKENS, gumbel_noise  # noqa: E402
from kernels.reference.sample import RowParameters, pack  # noqa: E402
from kernels.reference.sample import sample as reference  # noqa: E402
from kernels.sample import sample  # noqa: E402

ROWS = 4


def noise(places, domain):
    """Of the rows' seeds and places in their answers."""
    row = torch.arange(ROWS)[:, None]
    return gumbel_noise(row + 5, row, places, domain)


def drawn_by_both(logits, device):
    """Tokens of the kernels, the same as the reference's."""
    parameters = torch.from_numpy(pack([RowParameters(5 + i, i, 1.0) for i in range(ROWS)]))
    drawn = sample(logits.to(device), parameters.to(device), filtered=False).tokens.tolist()
    assert drawn == reference(logits, parameters).tokens.tolist()
    return drawn


@triton.jit
def _both_noises(upper_ptr, lower_ptr, rough_ptr, exact_ptr):
    place = tl.arange(0, 8)
    upper = tl.load(upper_ptr + place).to(tl.uint32)
    lower = tl.load(lower_ptr + place).to(tl.uint32)
    tl.store(rough_ptr + place, rough_gumbel(upper, lower))
    tl.store(exact_ptr + place, gumbel(upper, lower))


def test_rough_noise_is_within_its_margin(device):
    words = [0, 1, 1 << 20, 1 << 31, 2**32 - 2**22 - 1, 2**32 - 2**22, 2**32 - 2**12, 2**32 - 1]
    upper = torch.tensor(words)
    for low in (0, 2**20 - 1):
        lower = torch.full_like(upper, low)
        rough = torch.zeros(8, device=device)
        exact = torch.zeros(8, dtype=torch.float64, device=device)
        _both_noises[(1,)](upper.to(device), lower.to(device), rough, exact)
        uniform = ((upper << 20) + lower).double().add(0.5) / 2**52
        expected = -torch.log(-torch.log(uniform))
        assert torch.allclose(exact.cpu(), expected, rtol=0.0, atol=1e-12)
        assert float((rough.cpu() - expected).abs().max()) < 0.5 * MARGIN


def test_near_ties_are_told_apart_in_float64(device):
    """Scores that make up for the noise: float32 sums do not tell who wins."""
    logits = 3.0 - noise(torch.arange(GROUP), TOKENS).float()
    assert len(set(drawn_by_both(logits, device))) > 1


def test_near_ties_of_groups_are_told_apart(device):
    logits = 3.0 - noise(torch.arange(7), GROUPS).float()
    # Further apart than float32 errs, nearer than float64 is asked.
    logits += torch.randn(ROWS, 7) * 2e-4
    groups = [token // GROUP for token in drawn_by_both(logits.repeat_interleave(GROUP, 1), device)]
    assert len(set(groups)) > 1
