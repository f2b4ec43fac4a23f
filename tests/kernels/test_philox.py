"""Philox4x32-10 against published vectors."""

from __future__ import annotations

import pytest
import torch

from kernels.reference.philox import philox4x32

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


def call(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    c0, c1, c2, c3 = torch.tensor(counter)
    k0, k1 = torch.tensor(key)
    return tuple(int(word) for word in philox4x32((c0, c1, c2, c3), (k0, k1)))


@pytest.mark.parametrize(("counter", "key", "expected"), VECTORS)
def test_known_answers(
    counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    assert call(counter, key) == expected


def test_elements_are_independent() -> None:
    c0, c1, c2, c3 = torch.tensor([vector[0] for vector in VECTORS]).unbind(1)
    k0, k1 = torch.tensor([vector[1] for vector in VECTORS]).unbind(1)
    words = torch.stack(philox4x32((c0, c1, c2, c3), (k0, k1)), 1).tolist()
    assert [tuple(row) for row in words] == [vector[2] for vector in VECTORS]


def test_words_broadcast() -> None:
    low, high = torch.arange(5), torch.arange(3)[:, None]
    zero = torch.tensor(0)
    words = philox4x32((low, zero, high, zero), (high + 7, zero))
    assert words[0].shape == (3, 5)
    got = tuple(int(word[2, 4]) for word in words)
    assert got == call((4, 0, 2, 0), (9, 0))
