"""The progress of a load: one figure over all stages that never falls."""

from __future__ import annotations

from itertools import pairwise

import pytest

from app.load_progress import LoadProgress

OF_A_FOLDER = ["weights", "convert", "tokenizer", "warm_up"]
OF_A_PACKED_FILE = ["read", "tokenizer", "read", *OF_A_FOLDER]
OF_A_FILE = ["read", "tokenizer", "expand", "read", *OF_A_FOLDER]
AT_ONCE = ("tokenizer", "warm_up")
"""Stages of which only the beginning is told."""


def told(stages: list[str]) -> list[tuple[str, float]]:
    """What each stage brings the whole load to, step by step."""
    progress, found = LoadProgress(), []
    for stage in stages:
        for fraction in (0.0,) if stage in AT_ONCE else (0.0, 0.5, 0.98):
            progress.tell(stage, fraction)
            found.append((stage, progress.fraction))
    return found


@pytest.mark.parametrize(
    "stages", [OF_A_FOLDER, OF_A_PACKED_FILE, OF_A_FILE, ["fetch", *OF_A_PACKED_FILE]]
)
def test_a_load_begins_at_nothing_and_only_rises(stages: list[str]) -> None:
    found = told(stages)
    fractions = [fraction for _stage, fraction in found]
    assert fractions[0] == 0.0
    for (stage, before), (next_stage, after) in pairwise(found):
        assert after > before if stage == next_stage else after >= before
    assert found[-1][0] == "warm_up"
    assert 0.8 < fractions[-1] < 1.0


def test_a_stage_that_is_passed_over_leaves_its_share_to_the_others() -> None:
    at = dict(told(OF_A_FOLDER))
    assert at["weights"] == pytest.approx(0.98 * 4 / 13)
    assert at["tokenizer"] == pytest.approx(10 / 13)
    assert at["warm_up"] == pytest.approx(11 / 13)


def test_a_step_back_within_a_stage_is_not_shown() -> None:
    progress = LoadProgress()
    progress.tell("weights", 0.9)
    there = progress.fraction
    progress.tell("weights", 0.2)
    assert progress.fraction == there
    progress.tell("unheard of", 0.1)
    assert progress.fraction == there
