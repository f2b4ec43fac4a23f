"""The benchmarks themselves: each runs at its least size and reports what it promises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from engine.api.events import RequestUsage
from tests.benchmarks import (
    chats,
    decode_steps,
    kernel_rates,
    prefill_steps,
    prefix_share,
    report,
    scheduling_cost,
    seeds,
    shared_decode,
    tab_figures,
    tabs,
    throughput,
)
from tests.benchmarks.engine import MODULES, parser
from tests.benchmarks.options import CannotRunHere, Options
from tests.helpers.starter import starter_gguf

SMALL = Options(model="random:tiny", small=True)
SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "engine.py"
SEEDS_KEYS = [
    *("prefix_saved", "waste_paged", "waste_contiguous", "speedup_vs_transformers", "step_us"),
    *("hash_us_per_1000", "w2"),
]
STEP_KEYS = {"step_ms", "tok_s", "engine_us", "submit_ms", "result_ms", "device_ms"}


def run_script(*arguments: str, script: Path = SCRIPT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True, check=False
    )


def test_every_workload_has_its_module() -> None:
    folder = SCRIPT.parent
    assert list(MODULES) == [
        *("cpu", "seeds", "W1", "W2", "W3", "decode", "prefill", "kernels", "quantized", "gui-tax"),
        "suite",
    ]
    assert all((folder / f"{module}.py").is_file() for module in MODULES.values())


def test_the_sampling_script_asked_for_help_measures_nothing() -> None:
    done = run_script("--help", script=SCRIPT.with_name("sampling_rates.py"))
    assert done.returncode == 0, done.stderr
    assert "--sweep" in done.stdout
    assert '{"' not in done.stdout


def test_script_writes_what_its_last_line_says(tmp_path: Path) -> None:
    file = tmp_path / "w1.json"
    done = run_script("W1", "--small", "--model", "random:tiny", "--json", str(file))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert json.loads(lines[-1]) == json.loads(file.read_text("utf-8"))
    rows = [json.loads(line) for line in lines[:-1] if line.startswith("{")]
    assert rows == json.loads(lines[-1])["rows"]


@pytest.mark.parametrize("workload", ["kernels", "seeds"])
def test_a_workload_on_the_wrong_machine_says_so(workload: str) -> None:
    arguments = ["kernels"] if workload == "kernels" else ["seeds", "--device", "cuda"]
    done = run_script(*arguments)
    assert done.returncode == 2
    assert workload in done.stderr
    assert done.stdout == ""


def test_lists_of_cells_reach_the_options() -> None:
    found = parser().parse_args(["W2", "--tabs", "4", "8", "--system", "200"])
    assert (found.tabs, found.system, found.device) == ([4, 8], [200], "cpu")


def test_w1_counts_its_tokens() -> None:
    result = throughput.measure(SMALL)
    first, second = result["rows"]
    assert first["output_tokens"] == second["output_tokens"] > 0
    assert first["prompt_tokens"] == second["prompt_tokens"] > 0
    # The second run has other tokens: nothing of the first may help it.
    assert (first["cached_tokens"], second["cached_tokens"]) == (0, 0)
    assert first["tok_s"] == pytest.approx(first["output_tokens"] / first["seconds"], rel=0.01)
    assert 0 < first["pool_peak_blocks"] <= first["pool_blocks"]


def test_w1_refuses_other_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, outputs = throughput.draw_workload()
    assert (sum(map(len, prompts)), sum(outputs)) == (142_827, 133_966)
    monkeypatch.setattr(throughput, "LENGTHS", (100, 1023))
    with pytest.raises(RuntimeError, match="142827, 133966"):
        throughput.draw_workload()


@pytest.mark.parametrize("lag", [0, 1])
def test_decode_measures_every_cell(lag: int) -> None:
    options = Options(model="random:tiny", small=True, lag=lag, contexts=(64, 100, 50_000))
    rows = decode_steps.measure(options)["rows"]
    assert [(row["context"], row["batch"]) for row in rows] == [
        *((64, 1), (64, 3), (100, 1), (100, 3), (50_000, 1), (50_000, 3))
    ]
    assert all(row.keys() >= STEP_KEYS for row in rows[:4])
    assert rows[1]["tok_s"] == pytest.approx(3000 / rows[1]["step_ms"], rel=0.01)
    assert all("40960 tokens" in row["skipped"] for row in rows[4:])


def test_prefill_finds_what_is_cached() -> None:
    result = prefill_steps.measure(SMALL)
    assert [(row["cached"], row["computed"]) for row in result["rows"]] == [
        *((0, 96), (48, 48), (80, 16))
    ]
    first = result["first_token"]
    assert first["first_token_ms"] > 0.0
    assert 64 <= first["prompt_tokens"] <= 64 + 30  # the chat format is spelt in bytes


@pytest.mark.parametrize("lag", [0, 1])
def test_w3_decodes_over_one_prefix(lag: int) -> None:
    # A prefix that is not shared is an error of its own there.
    rows = shared_decode.measure(Options(model="random:tiny", small=True, lag=lag))["rows"]
    assert [(row["prefix"], row["batch"]) for row in rows[:2]] == [(64, 2), (64, 3)]
    assert all(row.keys() >= STEP_KEYS for row in rows)


def test_w2_serves_later_turns_from_the_cache() -> None:
    (row,) = tabs.measure(SMALL)["rows"]
    assert row["later_cached_ratio"] == 1.0
    assert row["first_cached_ratio"] == 1.0
    assert 0.0 < row["cached_ratio"] < 1.0
    assert row["num_paste_gaps"] > 0
    assert row["num_idle_gaps"] > 0
    assert row["paste_gap_max_ms"] >= row["paste_gap_p99_ms"] > 0.0
    assert set(row["ttft_by_turn_ms"]) == {"1", "2"}


def test_kernels_agree_with_their_peers() -> None:
    result = kernel_rates.measure(Options(small=True))
    assert result["failed"] == 0
    assert {row["kernel"] for row in result["rows"]} >= {
        *("paged_decode", "paged_prefill", "shared_prefix_decode", "store_kv"),
        *("sample", "skinny_linear"),
    }
    assert all(row.get("max_difference", 0.0) < 1e-4 for row in result["rows"])


def test_a_failing_kernel_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.benchmarks import kernel_cases

    def broken(*_: object, **__: object) -> None:
        raise ValueError("no such tile")

    monkeypatch.setattr(kernel_cases, "paged_decode", broken)
    result = kernel_rates.measure(Options(small=True))
    failures = [row["failed"] for row in result["rows"] if "failed" in row]
    assert result["failed"] == len(failures) == 2  # decode, and the plain one beside the shared
    assert all("no such tile" in failure for failure in failures)


def test_seeds_reports_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    # Needs a real model, and has a test of its own.
    monkeypatch.setattr(chats, "speedup", lambda options: 6.5)
    result = seeds.measure(SMALL)
    assert list(result) == SEEDS_KEYS
    assert result["prefix_saved"] == 0.9  # nine of ten requests
    assert result["waste_paged"] == 0.01314
    assert result["waste_contiguous"] == 0.6114
    assert result["step_us"].keys() == {"2000", "20000"}
    assert all(times.keys() == {"1", "4"} for times in result["step_us"].values())


@pytest.mark.slow
def test_speedup_over_transformers_is_measured() -> None:
    assert chats.speedup(Options(model=str(starter_gguf()), small=True)) > 0.0


def test_the_published_prefix_is_saved_but_once() -> None:
    row = prefix_share.prefix_saved()
    assert row["system_computed_with_cache"] == 1024
    assert row["prefix_saved"] == 0.99


def test_everything_beside_decode_steps_is_measured() -> None:
    rows = scheduling_cost.others(small=True)
    assert len(rows) == 11
    figures = [value for row in rows for name, value in row.items() if name.endswith("_us")]
    assert figures
    assert all(value > 0.0 for value in figures)


def test_seeds_is_for_the_cpu() -> None:
    with pytest.raises(CannotRunHere):
        seeds.measure(Options(device="cuda"))


def answer(tab: int, turn: int, sent: float, tokens: list[float], **fields: object) -> tabs.Answer:
    made = tabs.Answer(tab, turn, False, sent, tokens[0], tokens)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_gaps_during_a_paste_are_those_of_the_others() -> None:
    other = answer(1, 0, 0.0, [1.0, 1.02, 1.04, 1.3, 1.4, 2.0])
    before = answer(0, 0, 0.0, [1.0, 1.05, 1.1])
    paste = answer(0, 1, 1.1, [1.35, 1.36], is_paste=True)
    figures = tab_figures.figures([other, before, paste], 16)
    assert figures["idle_itl_ms"] == pytest.approx(20.0)
    assert figures["num_paste_gaps"] == 2  # 1.04 to 1.3, and 1.3 to 1.4
    assert figures["paste_gap_max_ms"] == pytest.approx(260.0)
    assert figures["paste_gap_bound_ms"] == 150.0
    assert figures["paste_gap_ok"] is False
    assert figures["paste_ttft_ms"] == pytest.approx(250.0)
    assert tab_figures.figures([other, before, paste], 16, on_gpu=True)["paste_gap_bound_ms"] == 8.0


def test_cached_ratios_are_of_what_could_be_shared() -> None:
    def usage(prompt: int, cached: int) -> RequestUsage:
        return RequestUsage(prompt_tokens=prompt, cached_tokens=cached)

    common = tuple(range(40))
    answers = [
        answer(0, 0, 0.0, [1.0], usage=usage(50, 0), prompt_ids=(*common, *range(100, 110))),
        answer(1, 0, 0.1, [1.0], usage=usage(50, 16), prompt_ids=(*common, *range(200, 210))),
        answer(0, 1, 2.0, [3.0, 3.1], usage=usage(100, 48), shareable_tokens=64, is_paste=True),
    ]
    figures = tab_figures.figures(answers, 16)
    assert figures["first_cached_ratio"] == 0.5  # 16 of 32
    assert figures["later_cached_ratio"] == 0.75
    assert figures["cached_ratio"] == 0.32


def test_percentile_and_medians_of_rows() -> None:
    assert [report.percentile([4.0, 1.0, 3.0, 2.0], share) for share in (0.0, 0.5, 0.51, 1.0)] == [
        *(1.0, 2.0, 3.0, 4.0)
    ]
    rows = [{"a": 1, "b": {"c": 4.0}, "d": "x"}, {"a": 3, "b": {"c": 2.0}, "d": "x", "e": None}]
    assert report.median_of(rows) == {"a": 2.0, "b": {"c": 3.0}, "d": "x", "e": None}
