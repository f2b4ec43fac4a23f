"""Kernel tests run on a GPU, else in Triton's interpreter (tests/conftest.py sees to it)."""

import pytest
import torch


@pytest.fixture(scope="session")
def device() -> torch.device:
    """Where Triton kernels run in this session."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def _fixed_random_numbers() -> None:
    """A bound on rounding errors holds for almost all draws: the same ones every time."""
    torch.manual_seed(20)
