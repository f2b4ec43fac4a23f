"""Storms at random, and what is left of one that fails when everything needless is taken out."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from tests.helpers.storm import Storm
from tests.helpers.storm_setup import WEIGHTS, Operation, Setup, Subject

MakeSubject = Callable[[Setup], Subject]


@dataclass(frozen=True)
class Recipe:
    """All that a storm depends on."""

    setup: Setup
    operations: tuple[Operation, ...]

    def play(self, make: MakeSubject) -> Storm:
        storm = Storm(self.setup, make(self.setup))
        for operation in self.operations:
            storm.act(operation)
        storm.finish()
        return storm

    def __str__(self) -> str:
        lines = [f"    {tuple(operation)}," for operation in self.operations]
        return "\n".join([f"{self.setup}", *lines])


def random_recipe(seed: int, lag: int, length: int) -> Recipe:
    draw = random.Random(f"{seed}/{lag}")
    setup = Setup.choose(draw.choice, lag)
    kinds = draw.choices(list(WEIGHTS), list(WEIGHTS.values()), k=length)
    operations = [Operation(kind, *(draw.randrange(1000) for _ in range(3))) for kind in kinds]
    return Recipe(setup, tuple(operations))


def failure_of(recipe: Recipe, make: MakeSubject) -> str:
    """What goes wrong, with its place; empty when nothing does."""
    try:
        recipe.play(make)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({place.name}, line {place.lineno})"
    return ""


def shrink(recipe: Recipe, make: MakeSubject, most_trials: int = 600) -> Recipe:
    """Takes operations out as long as something still goes wrong."""
    recipe = Recipe(recipe.setup, recipe.operations[: _failing_place(recipe, make) + 1])
    size = max(1, len(recipe.operations) // 2)
    while size and most_trials > 0:
        start, smaller = 0, False
        while start < len(recipe.operations) and most_trials > 0:
            most_trials -= 1
            kept = recipe.operations[:start] + recipe.operations[start + size :]
            trial = Recipe(recipe.setup, kept)
            if failure_of(trial, make):
                recipe, smaller = trial, True
            else:
                start += size
        size = size if smaller and size == 1 else size // 2
    return recipe


def _failing_place(recipe: Recipe, make: MakeSubject) -> int:
    storm = Storm(recipe.setup, make(recipe.setup))
    for place, operation in enumerate(recipe.operations):
        try:
            storm.act(operation)
        except Exception:
            return place
    return len(recipe.operations)


class StormFailure(AssertionError):
    """A storm that went wrong, with its seed and its shortest recipe."""


def run_seed(seed: int, lag: int, length: int, make: MakeSubject) -> Storm:
    """One random storm.

    Raises:
        StormFailure: something went wrong.
    """
    recipe = random_recipe(seed, lag, length)
    try:
        return recipe.play(make)
    except Exception as error:
        shortest = shrink(recipe, make)
        raise StormFailure(
            f"seed {seed}, lag {lag}, {length} operations: {type(error).__name__}: {error}\n"
            f"the shortest recipe found gives {failure_of(shortest, make)}:\n{shortest}"
        ) from error
