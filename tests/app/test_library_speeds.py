"""How fast models have been here: whose answers tell it, and what it says of others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.library.speeds import OwnPace, Speed, SpeedBook
from engine.api.events import (
    EngineStatus,
    EngineStatusChanged,
    Event,
    FinishReason,
    RequestFinished,
    RequestPaused,
    RequestPreempted,
    RequestQueued,
    RequestResumed,
    RequestUsage,
)
from engine.api.params import SamplingParams
from tests.helpers.fake_engine import MODEL
from tests.helpers.library_stage import GB, MB, Kept

# --- whether an answer tells a speed ---


IDS = ("request", "conversation")
QUEUED = RequestQueued(*IDS, 1, 0, SamplingParams())
FINISHED = RequestFinished(*IDS, FinishReason.STOP, "", RequestUsage(), None, 1)
SLOW = EngineStatusChanged(EngineStatus.READY, steps_per_s=4.0)
STILL = EngineStatusChanged(EngineStatus.READY, paused=True)
USUAL = EngineStatusChanged(EngineStatus.READY)


@pytest.mark.parametrize(
    ("events", "is_own"),
    [
        ([QUEUED], True),
        ([SLOW, USUAL, QUEUED], True),
        ([SLOW, QUEUED, USUAL], False),
        ([QUEUED, STILL, USUAL], False),
        ([QUEUED, RequestPaused(*IDS), RequestResumed(*IDS)], False),
        ([QUEUED, RequestPreempted(*IDS, "pool", 3)], False),
        ([QUEUED, RequestPreempted("other", "conversation", "pool", 3)], True),
        ([QUEUED, STILL, FINISHED, USUAL, QUEUED], True),
    ],
)
def test_an_answer_that_was_held_up_was_not_made_at_the_models_own_pace(
    events: list[Event], is_own: bool
) -> None:
    pace = OwnPace()
    for event in events:
        pace.take(event)
    assert pace.take(FINISHED) is is_own


# --- speeds ---


def usage(**changes: float) -> RequestUsage:
    values = {"computed_tokens": 400, "output_tokens": 21, "prefill_s": 2.0}
    return RequestUsage(**{**values, "ttft_s": 2.0, "total_s": 4.0, **changes})  # type: ignore[arg-type]


BIG = replace(MODEL, path="/big.gguf", device="cpu", weights_bytes=2 * GB)


def test_the_speed_of_a_model_that_ran_is_the_measured_one() -> None:
    book = SpeedBook("", lambda _text: None)
    book.note(BIG, usage(), ran_alone=True)
    assert book.of("/big.gguf", "cpu", 2 * GB) == Speed(10.0, 200.0, is_measured=True)


def test_a_model_of_half_the_bytes_is_about_twice_as_fast() -> None:
    book = SpeedBook("", lambda _text: None)
    book.note(BIG, usage(), ran_alone=True)
    assert book.of("/half.gguf", "cpu", GB).decode == 20.0


@pytest.mark.parametrize("weights_bytes", [GB // 10, 2 * GB, 40 * GB])
def test_of_a_model_that_did_not_run_nobody_says_how_fast_it_reads(weights_bytes: int) -> None:
    """On two cores a random Qwen3 0.6B read 35 tokens/s, where what Gemma 3 270M and SmolLM2 135M
    had shown came to 130 and 63, scaled by the parameters.
    """
    book = SpeedBook("", lambda _text: None)
    book.note(BIG, usage(), ran_alone=True)
    assert book.of("/other.gguf", "cpu", weights_bytes).prefill == 0.0


def test_a_toy_model_is_not_faster_than_steps_that_read_nothing() -> None:
    kept = Kept()
    book = SpeedBook("", kept.save)
    book.note(BIG, usage(), ran_alone=True)
    assert book.of("/toy.gguf", "cpu", MB // 10) == Speed(500.0)
    # One that ran faster shows that this device can do more.
    quick = replace(BIG, path="/quick.gguf", weights_bytes=MB)
    book.note(quick, usage(prefill_s=0.001, ttft_s=0.001, total_s=0.021), ran_alone=True)
    for each in (book, SpeedBook(kept.text, kept.save)):
        assert each.of("/toy.gguf", "cpu", MB // 10).decode == pytest.approx(1000.0)


def test_a_small_model_does_not_spoil_what_a_large_one_has_shown() -> None:
    book = SpeedBook("", lambda _text: None)
    large = replace(MODEL, path="large.gguf", weights_bytes=8 * GB)
    small = replace(MODEL, path="small.gguf", weights_bytes=GB // 100)
    book.note(large, usage(), ran_alone=True)
    before = book.of("other.gguf", "cpu", 4 * GB)
    book.note(small, usage(), ran_alone=True)
    assert book.of("other.gguf", "cpu", 4 * GB) == before


def test_a_larger_model_is_believed_before_a_small_one() -> None:
    book = SpeedBook("", lambda _text: None)
    small = replace(MODEL, path="small.gguf", weights_bytes=GB // 100)
    large = replace(MODEL, path="large.gguf", weights_bytes=8 * GB)
    for model in (small, large):
        book.note(model, usage(), ran_alone=True)
    speed = book.of("other.gguf", "cpu", 4 * GB)
    assert speed.decode == pytest.approx(2 * book.of("large.gguf", "cpu", 0).decode)


def test_a_device_that_became_slower_is_believed() -> None:
    book = SpeedBook("", lambda _text: None)
    book.note(MODEL, usage(), ran_alone=True)
    fast = book.of("other.gguf", MODEL.device, GB)
    book.note(MODEL, replace(usage(), total_s=100.0), ran_alone=True)
    assert book.of("other.gguf", MODEL.device, GB).decode < fast.decode / 5


def test_nothing_is_said_of_another_device() -> None:
    book = SpeedBook("", lambda _text: None)
    book.note(BIG, usage(), ran_alone=True)
    assert book.of("/half.gguf", "cuda:0", GB) == Speed()


def test_what_a_model_showed_on_one_device_says_nothing_of_another() -> None:
    kept = Kept()
    book = SpeedBook("", kept.save)
    book.note(replace(BIG, device="cuda:0"), usage(prefill_s=0.01), ran_alone=True)
    assert book.of("/big.gguf", "cpu", 2 * GB) == Speed()
    book.note(BIG, usage(), ran_alone=True)
    for each in (book, SpeedBook(kept.text, kept.save)):
        assert each.of("/big.gguf", "cpu", 2 * GB).prefill == 200.0
        assert each.of("/big.gguf", "cuda:1", 2 * GB).prefill == pytest.approx(40_000.0)


def test_an_answer_beside_others_says_nothing_of_decoding() -> None:
    book = SpeedBook("", lambda _text: None)
    book.note(BIG, usage(), ran_alone=False)
    assert book.of("/big.gguf", "cpu", 2 * GB) == Speed(0.0, 200.0)


def test_a_short_answer_from_the_cache_says_nothing() -> None:
    said: list[str] = []
    book = SpeedBook("", said.append)
    book.note(BIG, usage(computed_tokens=3, output_tokens=2), ran_alone=True)
    assert said == []
    assert book.of("/big.gguf", "cpu", 2 * GB) == Speed()


def test_a_prompt_from_the_cache_tells_how_fast_the_model_writes() -> None:
    book = SpeedBook("", lambda _text: None)
    book.note(BIG, usage(computed_tokens=3), ran_alone=True)
    assert book.of("/big.gguf", "cpu", 2 * GB) == Speed(10.0, 0.0, is_measured=True)


def test_a_short_prompt_does_not_speak_for_long_ones() -> None:
    kept = Kept()
    book = SpeedBook("", kept.save)
    book.note(BIG, usage(computed_tokens=4000, prefill_s=40.0), ran_alone=False)
    assert book.of("/big.gguf", "cpu", 2 * GB).prefill == pytest.approx(100.0)
    book.note(BIG, usage(computed_tokens=40, prefill_s=0.1), ran_alone=False)
    for each in (book, SpeedBook(kept.text, kept.save)):
        assert each.of("/big.gguf", "cpu", 2 * GB).prefill == pytest.approx(2040 / 20.1)
    # A device that became slower is believed all the same.
    for _ in range(8):
        book.note(BIG, usage(computed_tokens=40, prefill_s=4.0), ran_alone=False)
    assert book.of("/big.gguf", "cpu", 2 * GB).prefill < 20.0


def test_a_book_without_the_lengths_of_prompts_is_read() -> None:
    book = SpeedBook('{"measured": {"cpu": {"/big.gguf": [10.0, 200.0]}}}', lambda _text: None)
    assert book.of("/big.gguf", "cpu", 2 * GB) == Speed(10.0, 200.0, is_measured=True)
    book.note(BIG, usage(computed_tokens=400, prefill_s=4.0), ran_alone=False)
    assert book.of("/big.gguf", "cpu", 2 * GB).prefill == pytest.approx(100.0)


def test_speeds_are_known_after_a_restart() -> None:
    kept = Kept()
    SpeedBook("", kept.save).note(BIG, usage(), ran_alone=True)
    again = SpeedBook(kept.text, kept.save)
    assert again.of("/half.gguf", "cpu", GB) == Speed(20.0)
    assert again.of("/big.gguf", "cpu", 2 * GB) == Speed(10.0, 200.0, is_measured=True)


@pytest.mark.parametrize(
    "stored",
    [
        "{",
        "3",
        '{"measured": {"cpu": {"a": [1]}}}',
        '{"measured": {"cpu": 3}}',
        '{"measured": [1]}',
        '{"bandwidths": {"cpu": "x"}}',
        '{"fastest": {"cpu": [1, 2]}}',
        '{"models": {"a": [1.0, 2.0]}, "devices": {"cpu": [1e9, 1e12]}}',
    ],
)
def test_a_damaged_book_is_an_empty_one(stored: str) -> None:
    assert SpeedBook(stored, lambda _text: None).of("a", "cpu", 1) == Speed()
