"""All benchmarks in one call: each part by itself, whatever becomes of the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.benchmarks import suite
from tests.benchmarks.options import Options
from tests.benchmarks.suite import PARTS, Part

SCRIPTS = {
    "good.py": """print('{"workload": "decode", "batch": 1, "context": 512, "tok_s": 1234.0}')""",
    "bad.py": "print('so far'); raise SystemExit('it broke')",
    "slow.py": 'import time; print(\'{"run": 3, "tok_s": 9.0}\'); time.sleep(60)',
    "odd.py": "print('{not json'); print('{\"speedup\": 0.9}'); print('{\"speedup\": 1.5}')",
}


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.setattr(suite, "_FOLDER", tmp_path)
    made = {
        "W1": Part(("slow.py",), ("slow.py",), 5.5),
        "W2": Part(("bad.py",), ("bad.py",), 60),
        "decode": Part(("good.py",), ("good.py",), 60),
        "W3": Part(("odd.py",), ("odd.py",), 60),
        "attention": Part(("good.py",), None, 60),
    }
    monkeypatch.setattr(suite, "PARTS", {name: made.get(name, made["attention"]) for name in PARTS})


def test_a_part_that_fails_or_hangs_stops_no_other(
    parts: None, capsys: pytest.CaptureFixture[str]
) -> None:
    options = Options(parts=("W1", "W2", "attention", "decode", "W3"))
    result = suite.measure(options)
    states = {state["part"]: state for state in result["parts"]}
    assert "ended after 6 s" in states["W1"]["failed"]
    assert "it ended with 1: so far | it broke" in states["W2"]["failed"]
    assert states["attention"]["skipped"] == "it needs a GPU"
    assert all("failed" not in states[name] for name in ("decode", "W3"))
    figures = {figure["figure"]: figure for figure in result["figures"]}
    assert figures["decode, batch 1, tok/s"]["found"] == 1234
    assert figures["decode, batch 1, tok/s"]["reached"] == "yes"
    # What a part said before it was ended counts.
    assert (figures["W1, tok/s"]["found"], figures["W1, tok/s"]["reached"]) == (9, "no")
    assert figures["W3, the least, times"]["found"] == 0.9
    assert figures["decode, batch 8, tok/s"]["found"] is None
    said = capsys.readouterr().out
    assert json.loads(said.splitlines()[0]) == {"run": 3, "tok_s": 9.0}


def test_figures_are_found_in_rows_as_the_benchmarks_print_them() -> None:
    decode = {"workload": "decode", "context": 512, "step_ms": 1.0, "engine_us": 100.0}
    rows: suite.Rows = {name: [] for name in PARTS}
    rows["decode"] = [
        {**decode, "batch": 8, "tok_s": 7000.0, "submit_ms": 0.5},
        {"workload": "decode", "rows": [{"tok_s": 1.0}]},
    ]
    rows["host"] = [{**decode, "batch": 8, "submit_ms": 0.2}]
    rows["neighbours"] = [
        {**decode, "batch": batch, "context": context, "step_ms": batch / 16 + context / 8192}
        for batch in (16, 17)
        for context in (512, 8192, 9216)
    ]
    rows["attention"] = [
        {"part": "decode", "batch": 1, "context": 512, "us": 5.0, "fa3_us": 11.0, "tb_s": 0.4},
        {"part": "decode", "batch": 8, "context": 8192, "us": 70.0, "fa3_us": 60.0, "tb_s": 3.5},
        {"part": "shared", "batch": 16, "prefix": 8192, "us": 32.0},
        {"part": "mixed", "batch": 101, "longest": 1624, "us": 90.0, "fa3_us": 100.0},
        {"part": "mixed", "batch": 24, "longest": 1934, "us": 48.0, "fa3_us": 50.0},
        {"part": "decode", "shape": [64, 512], "failed": "out of memory"},
    ]
    rows["W3"] = [{"speedup": 1.1}, {"speedup": 0.99}]
    found = {figure.name: suite._found(figure, rows) for figure in suite.FIGURES}
    values = {name: row["found"] for name, row in found.items() if row["found"] is not None}
    assert values == {
        "decode, batch 8, tok/s": 7000,
        "host a step, batch 8, ms": 0.3,
        "W3, the least, times": 0.99,
        "neighbours, the most, times": 1.062,
        "decode attention, of the copy": 0.8216,
        "decode attention, 1 of 512, of FA3": 0.4545,
        "decode attention, the most of FA3": 1.167,
        "decode attention, mixed, the most of FA3": 0.96,
        "attention, 16 share 8192, us": 32,
    }
    missed = {name for name, row in found.items() if row["reached"] == "no"}
    assert missed == {"decode, batch 8, tok/s", "decode attention, the most of FA3"}


def test_what_there_is_no_time_for_is_told(parts: None) -> None:
    result = suite.measure(Options(parts=("W1", "decode"), seconds=6.0))
    first, second = result["parts"]
    assert "failed" in first
    assert second["skipped"] == "no time was left"


def test_scripts_and_their_arguments_are_there() -> None:
    from tests.benchmarks.engine import parser

    folder = Path(suite.__file__).parent
    for part in PARTS.values():
        for command in (part.command, part.small):
            if command is not None:
                assert (folder / command[0]).is_file()
                if command[0] == "engine.py":
                    assert parser().parse_args(command[1:]).workload in command
