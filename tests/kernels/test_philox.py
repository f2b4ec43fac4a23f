"""Philox4x32-10 against published vectors, and the noise that is made of it."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.reference.philox import gumbel_noise, philox4x32

# Known answers published with the generator (Random123, kat_vectors): counter, key, result.
VECTORS = [
    (
        (0, 0, 0, 0),
        (0, 0),
        (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    ),
    (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def noise(seed: int, index: int, tokens: torch.Tensor) -> torch.Tensor:
    return gumbel_noise(torch.full_like(tokens, seed), torch.full_like(tokens, index), tokens)


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_known_answers(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    words = philox4x32(torch.tensor(counter)[:, None], torch.tensor(key)[:, None])
    assert tuple(words[:, 0].tolist()) == expected


def test_columns_are_independent() -> None:
    counters = torch.tensor([vector[0] for vector in VECTORS]).T
    keys = torch.tensor([vector[1] for vector in VECTORS]).T
    words = philox4x32(counters, keys).T.tolist()
    assert [tuple(row) for row in words] == [vector[2] for vector in VECTORS]


def test_noise_does_not_depend_on_which_tokens_are_asked_for() -> None:
    tokens = torch.arange(1000)
    whole = noise(7, 3, tokens)
    some = torch.tensor([999, 4, 5, 17])
    assert torch.equal(noise(7, 3, some), whole[some])


def test_noise_changes_with_seed_and_index() -> None:
    tokens = torch.arange(64)
    base = noise(7, 3, tokens)
    for seed, index in ((8, 3), (7, 4), (7 + 2**32, 3), (-7, 3), (7, 3 + 2**32)):
        assert not bool((noise(seed, index, tokens) == base).any()), (seed, index)


def test_noise_has_the_moments_of_a_gumbel_distribution() -> None:
    values = noise(12345, 0, torch.arange(400_000)).double()
    # Standard errors: 0.002 of the mean, 0.006 of the variance.
    assert abs(float(values.mean()) - 0.5772156649) < 0.01
    assert abs(float(values.var()) - math.pi**2 / 6) < 0.03
    assert bool(values.isfinite().all())
