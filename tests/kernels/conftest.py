"""Kernel tests run on a GPU where there is one, else in Triton's interpreter.

The variable must be set before a kernel is defined, hence here and not in a fixture.
"""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where Triton kernels run in this session."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def _fixed_random_numbers() -> None:
    """A bound on rounding errors holds for almost all draws: the same ones every time."""
    torch.manual_seed(20)
