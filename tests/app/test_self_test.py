"""The self-test itself: what it reports, and that it fails when it should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.conversation import ASSISTANT, Message
from app.self_test import QUESTIONS, SYSTEM_PROMPT, question
from app.self_test_report import (
    Report,
    check_figures,
    check_later_turn,
    check_tabs,
    history_in_cache,
    shared_tokens,
)
from engine.api.events import RequestUsage
from engine.api.params import TurnTokens
from tests.helpers import run_app

KEYS = [
    *("ok", "model", "device", "backend", "first_paint_ms", "load_s", "gui_load_gap_ms"),
    *("first_answer_s", "tabs", "second_turn", "fork", "shared_blocks_max", "pool"),
    *("invariant_violations", "gui_max_gap_ms", "screenshot"),
]
# What a busy machine may miss; everything else must hold on any.
TIMINGS = ("first_paint_ms", "gui_load_gap_ms", "gui_max_gap_ms")


def answer(prompt_ids: tuple[int, ...], cached: int, output: int = 48) -> Message:
    usage = RequestUsage(prompt_tokens=len(prompt_ids), cached_tokens=cached, output_tokens=output)
    turn = TurnTokens(prompt_ids, tuple(range(output)), 10, "f")
    return Message(ASSISTANT, "text", usage=usage, turn=turn)


def prompt(common: int, own: int, length: int = 100) -> tuple[int, ...]:
    return tuple(range(common)) + tuple(own * 1000 + n for n in range(length - common))


def test_shared_tokens_are_whole_blocks_of_the_longest_common_prefix() -> None:
    prompts = [prompt(85, 1), prompt(85, 2), (*prompt(85, 1)[:97], 7, 7, 7)]
    assert [shared_tokens(prompts, n, 16) for n in range(3)] == [0, 80, 96]


def test_the_last_token_of_a_prompt_is_never_taken_from_the_cache() -> None:
    prompts = [tuple(range(96)), tuple(range(96))]
    assert shared_tokens(prompts, 1, 16) == 80


def test_a_history_in_the_cache_leaves_out_the_token_that_was_never_fed() -> None:
    assert history_in_cache(TurnTokens(tuple(range(16)), (1,), 0, "f"), 16) == 16
    assert history_in_cache(TurnTokens(tuple(range(15)), (1,), 0, "f"), 16) == 0


def test_good_tabs_have_no_faults() -> None:
    assert check_tabs([answer(prompt(85, 1), 0), answer(prompt(85, 2), 80)], 16) == []


@pytest.mark.parametrize("cached", [0, 64, 96])
def test_a_tab_with_another_figure_is_a_fault(cached: int) -> None:
    (fault,) = check_tabs([answer(prompt(85, 1), 0), answer(prompt(85, 2), cached)], 16)
    assert fault == f"tab 2: {cached} tokens from cache, expected 80"


def test_tabs_that_share_nothing_are_a_fault() -> None:
    faults = check_tabs([answer(prompt(3, 1), 0), answer(prompt(3, 2), 0)], 16)
    assert faults == ["tab 2: shares no block with the tabs before it"]


def test_a_later_turn_may_prefill_its_message_and_31_tokens() -> None:
    before = TurnTokens(tuple(range(100)), tuple(range(48)), 0, "f")
    later = answer(tuple(range(184)), 144)
    assert check_later_turn("turn", later, before, 9, 16) == []
    assert len(check_later_turn("turn", later, before, 8, 16)) == 1


def test_a_later_turn_that_lost_the_answer_is_a_fault() -> None:
    before = TurnTokens(tuple(range(100)), tuple(range(48)), 0, "f")
    faults = check_later_turn("turn", answer(tuple(range(160)), 96), before, 100, 16)
    assert faults == ["turn: 96 tokens from cache, but 144 were computed before"]


def test_figures_within_the_limits_have_no_faults() -> None:
    report = Report(first_paint_ms=999.9, gui_load_gap_ms=499.9, gui_max_gap_ms=49.9)
    report.shared_blocks_max = 1
    assert check_figures(report) == []


def test_each_figure_over_its_limit_is_a_fault() -> None:
    report = Report(first_paint_ms=1000.0, gui_load_gap_ms=500.0, gui_max_gap_ms=50.0)
    report.invariant_violations = 2
    assert len(check_figures(report)) == 5


def test_the_report_has_exactly_the_agreed_keys() -> None:
    assert list(json.loads(Report().to_json())) == KEYS


def test_every_tab_asks_something_else() -> None:
    assert len({question(n) for n in range(32)}) == 32
    assert len(SYSTEM_PROMPT.split()) >= 60
    assert max(len(text.split()) for text in QUESTIONS) <= 15


def test_the_self_test_runs_in_a_window_and_reports(tmp_path: Path) -> None:
    report_file, picture = tmp_path / "é" / "report.json", tmp_path / "é" / "window.png"
    done = run_app.run(
        "--self-test", "--tabs", "3", "--json", str(report_file), "--screenshot", str(picture)
    )
    last = done.stdout.splitlines()[-1]
    report = json.loads(last)
    assert report_file.read_text("utf-8").strip() == last
    faults = [line for line in done.stderr.splitlines() if line.startswith("self-test:")]
    assert [line for line in faults if not any(name in line for name in TIMINGS)] == []
    assert done.returncode == (1 if faults else 0)
    assert report["ok"] is (not faults)
    assert list(report) == KEYS
    assert [list(tab) for tab in report["tabs"]] == [
        ["prompt_tokens", "cached_tokens", "new_tokens", "ttft_ms", "tok_s", "text"]
    ] * 3
    assert [tab["cached_tokens"] for tab in report["tabs"]] == [0, 80, 80]
    assert [tab["new_tokens"] for tab in report["tabs"]] == [48] * 3
    assert list(report["pool"]) == ["num_blocks", "block_size", "used_max"]
    assert report["shared_blocks_max"] == 5
    assert report["first_paint_ms"] > 0
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert "torch loaded: False" in done.stderr


def test_an_engine_without_a_prefix_cache_fails_the_self_test() -> None:
    done = run_app.run("--self-test", "--tabs", "2", fault="never-cached")
    report = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, report["ok"]) == (1, False)
    assert "tab 2: 0 tokens from cache, expected 80" in done.stderr
    assert "second turn: 0 tokens from cache" in done.stderr


def test_a_model_that_cannot_be_loaded_fails_the_self_test_with_the_reason() -> None:
    done = run_app.run("--self-test", fault="no-model")
    report = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, report["ok"], report["tabs"]) == (1, False, [])
    assert "The file ends after 12 of 94 MB." in done.stderr


def test_an_engine_that_crashes_fails_the_self_test_with_the_reason() -> None:
    done = run_app.run("--self-test", fault="crashes")
    report = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, report["ok"]) == (1, False)
    assert "the engine's own fault" in done.stderr


def test_a_window_that_cannot_show_a_message_fails_the_self_test_and_leaves_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Memory that was freed is found at once, not in most runs.
    monkeypatch.setenv("PYTHONMALLOC", "debug")
    file = tmp_path / "report.json"
    done = run_app.run("--self-test", "--json", str(file), fault="unparsed")
    assert done.returncode == 1
    assert "self-test: internal: ModuleNotFoundError: import of mdurl halted" in done.stderr
    report = json.loads(file.read_text("utf-8"))
    assert report == json.loads(done.stdout.splitlines()[-1])
    assert report["ok"] is False


def test_a_self_test_that_dies_leaves_a_report_that_it_came_nowhere(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text('{"ok": true}')
    done = run_app.run("--self-test", "--json", str(file), fault="no-window")
    assert done.returncode == 1
    assert "the window's own fault" in done.stderr
    assert json.loads(file.read_text("utf-8")) == json.loads(Report().to_json())


def test_a_step_that_fails_in_itself_fails_the_self_test_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = run_app.run("--self-test", "--json", str(file), fault="blind")
    assert done.returncode == 1
    assert "self-test: RuntimeError: nothing can be seen" in done.stderr
    assert json.loads(file.read_text("utf-8"))["ok"] is False


def test_an_error_at_the_very_end_fails_the_self_test() -> None:
    done = run_app.run("--self-test", "--tabs", "2", fault="fails-last")
    assert done.returncode == 1
    assert "self-test: internal: RuntimeError: at the end" in done.stderr
