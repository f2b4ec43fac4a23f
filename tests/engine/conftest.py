"""What tests of the engine share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.talk import Talk, talk_with_engine


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Two threads wait for each other far longer than such small products take."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def talk() -> Iterator[Talk]:
    """An engine on its thread, and what it says."""
    with talk_with_engine() as made:
        yield made
