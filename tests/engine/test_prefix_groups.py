"""Groups of sequences with a common beginning, found in their block tables."""

from __future__ import annotations

import itertools
import random

import numpy as np

from engine.attention.prefix_groups import PrefixGroup, find_prefix_groups

JUNK = 2**30

asked = []
"""What was asked of the gate."""


def find(tables, lengths, least=1):
    width = max(len(table) for table in tables)
    rows = np.full((len(tables), width), JUNK, np.int64)
    for place, table in enumerate(tables):
        rows[place, : len(table)] = table

    def pays(count, tokens, own):
        asked.append((count, tokens, own))
        return (count - 1) * tokens >= least

    asked.clear()
    return find_prefix_groups(rows, np.array(lengths), 4, pays)


def test_common_blocks_of_all():
    groups = find([[7, 8, 1], [7, 8, 2], [7, 8, 3, 4]], [10, 12, 14])
    assert groups == [PrefixGroup((0, 1, 2), 2)]
    # 8 tokens in common, and 2, 4 and 6 besides.
    assert asked == [(3, 8, 12)]


def test_a_block_that_is_still_written_is_not_shared():
    # 8 tokens with the new one: it lies in block 1.
    assert find([[7, 8], [7, 8]], [8, 8]) == [PrefixGroup((0, 1), 1)]
    assert find([[7, 8], [7, 8]], [4, 4]) == []


def test_longer_common_beginnings_of_some_win_over_a_short_one_of_all():
    tables = [[1, 2, 3, 4, 10], [1, 2, 3, 4, 11], [1, 5, 6, 7, 12], [1, 5, 6, 7, 13]]
    groups = find(tables, [17] * 4)
    assert groups == [PrefixGroup((0, 1), 4), PrefixGroup((2, 3), 4)]
    tables = [[1, 2, 3, 10], [1, 2, 3, 11], [1, 2, 4, 12], [1, 2, 4, 13]]
    assert find(tables, [13] * 4) == [PrefixGroup((0, 1, 2, 3), 2)]


def test_what_does_not_pay_is_left_out():
    tables = [[1, 2, 9], [1, 3, 8], [5, 6, 7], [5, 6, 4]]
    assert find(tables, [12] * 4, least=8) == [PrefixGroup((2, 3), 2)]


def test_strangers_and_a_single_sequence_form_no_group():
    assert find([[1, 2], [3, 4]], [8, 8]) == []
    assert find([[1, 2]], [8]) == []


def test_groups_are_the_best_of_all_ways_to_form_them():
    """Against trying every partition of small random forests."""
    generator = random.Random(5)
    for _ in range(60):
        count = generator.randint(2, 5)
        tables = [[generator.randint(0, 1) for _ in range(4)] for _ in range(count)]
        # A block id stands for its whole beginning, as in a real table.
        tables = [[hash(tuple(table[: end + 1])) % 10**6 for end in range(4)] for table in tables]
        lengths = [generator.randint(2, 17) for _ in tables]
        tables = [table[: -(-length // 4)] for table, length in zip(tables, lengths, strict=True)]
        found = find(tables, lengths)
        assert sum((len(group.rows) - 1) * group.shared_blocks for group in found) == best(
            tables, lengths
        )


def best(tables, lengths):
    full = [(length - 1) // 4 for length in lengths]

    def common(rows):
        end = min(full[row] for row in rows)
        for place in range(end):
            if len({tables[row][place] for row in rows}) > 1:
                return place
        return end

    top = 0
    for labels in itertools.product(range(len(tables)), repeat=len(tables)):
        groups = [[row for row, own in enumerate(labels) if own == label] for label in set(labels)]
        top = max(top, sum((len(rows) - 1) * common(rows) for rows in groups))
    return top
