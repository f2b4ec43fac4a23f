"""The benchmark of the window says what scripts read from it, and its parts work."""

from __future__ import annotations

import json
import sys

import pytest

from tests.benchmarks import gui, gui_search, gui_start, gui_window

KEYS = [
    *("gap_p50_ms", "gap_p99_ms", "gap_max_ms", "key_to_paint_ms", "open_big_ms"),
    *("first_paint_ms", "first_paint_5000_ms", "rss_growth_mb", "search_ms"),
]


def test_the_last_line_is_one_object_with_exactly_these_keys(qapp, monkeypatch, capsys) -> None:
    found = {
        gui_window.stream_in_tabs: {"gap_p50_ms": 1.0, "gap_p99_ms": 2.0, "gap_max_ms": 3.0},
        gui_window.stream_long_answer: {"gap_p99_ms": 9.0},
        gui_window.type_while_streaming: {"p95_ms": 4.0},
        gui_window.open_big: {"open_ms": {"mixed": 5.0, "one line": 6.0}},
        gui_window.open_and_close: {"rss_growth_mb": 7.0},
    }
    monkeypatch.setattr(gui_window, "_apart", found.__getitem__)
    starts = {"first_paint_ms": 8.0, "first_paint_5000_ms": 9.0}
    monkeypatch.setattr(gui_start, "measure", lambda: starts)
    monkeypatch.setattr(gui_search, "measure", lambda: {"search_ms": 10.0})
    monkeypatch.setattr(sys, "argv", ["gui.py", "window"])
    assert gui.main() == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(last) == KEYS
    assert list(last.values()) == [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 9.0, 7.0, 10.0]


@pytest.mark.parametrize("name", ["mixed", "typed"])
def test_the_texts_are_of_the_size_that_is_told(name: str) -> None:
    text, is_typed = gui_window.big_texts()[name]
    assert gui_window.BIG_CHARS * 0.97 < len(text) <= gui_window.BIG_CHARS * 1.05
    assert is_typed is (name == "typed")
