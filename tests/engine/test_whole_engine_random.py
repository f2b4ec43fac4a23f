"""Storms over a real decoder in float64: every answer equals the same request run alone, with
nothing cached, whatever else went on: turns built on turns, forks, cuts, preemption, failures.

Greedy and seeded sampling with every filter and penalty, end tokens, stop strings.
"""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest

from tests.helpers.storm_search import run_seed
from tests.helpers.storm_subjects import TinySubject

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize(
    ("backend", "least"), [("paged_reference", 2_500), ("contiguous", 500), ("dense", 500)]
)
def test_answers_equal_those_of_requests_alone(backend, least, lag, record_property):
    operations, seed = 0, 0
    seen: Counter[str] = Counter()
    while operations < least:
        storm = run_seed(seed, lag, 40, partial(TinySubject, backend=backend))
        operations += storm.num_operations
        seen += storm.seen
        seed += 1
    print(f"{backend}, lag {lag}: {seed} storms, {operations} operations, {dict(seen)}")
    record_property("operations", operations)
    assert seen["stop"] >= 3
    assert seen["lengthmax_tokens"] >= 5
