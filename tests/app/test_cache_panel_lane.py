"""The scheduler lane: what requests do, why they wait, what a step amounts to."""

from __future__ import annotations

from dataclasses import replace

from app.cache_panel import lane_words
from app.cache_panel.lane import Lane, LaneRow, StepWork, freed_by
from app.cache_panel.pool_model import PoolModel
from engine.api.events import PrefillProgress, RequestWaiting, WaitReason
from engine.api.snapshot import RequestRow, Snapshot
from tests.helpers.panel_names import Numbers
from tests.helpers.scripted_pool import four_conversations


def request(name: str, phase: str, computed: int, **other: object) -> RequestRow:
    row = RequestRow(
        f"r{name}", f"c{name}", phase, (), 200, 100, computed, 32, waits_for="", blocks_short=0
    )
    return replace(row, **other)


def snapshot(step: int, time_s: float, computed: int, *rows: RequestRow) -> Snapshot:
    found = four_conversations().snapshot()
    return replace(
        found, step=step, time_s=time_s, total_computed_tokens=computed, requests=tuple(rows)
    )


def progress(computed: int, prompt: int = 100) -> PrefillProgress:
    return PrefillProgress("r1", "c1", computed, prompt, 32)


def row(name: str, phase: str, **other: object) -> LaneRow:
    return replace(LaneRow(f"r{name}", f"c{name}", phase, 100, 40, 32, 0), **other)


def sentence(shown: LaneRow, *others: LaneRow) -> str:
    model = PoolModel.from_snapshot(four_conversations().snapshot())
    return lane_words.sentence(shown, [shown, *others], model, Numbers())


def test_two_snapshots_tell_width_tokens_and_speed() -> None:
    lane = Lane()
    lane.take(snapshot(10, 5.0, 1000, request("1", "decode", 110), request("2", "waiting", 0)))
    lane.take(snapshot(20, 5.5, 1040, request("1", "decode", 120), request("2", "waiting", 0)))
    assert lane.work == StepWork(1, 4.0)
    assert lane.steps_per_s == 20.0
    words = lane_words.summary(lane.work, lane.steps_per_s, 1)
    assert words == "1 request in each step · 4.0 tokens a step · 20 steps/s · 1 waiting"


def test_the_same_snapshot_again_changes_nothing() -> None:
    lane = Lane()
    lane.take(snapshot(10, 5.0, 1000, request("1", "decode", 110)))
    second = snapshot(20, 5.5, 1040, request("1", "decode", 120))
    lane.take(second)
    lane.take(second)
    assert lane.work == StepWork(1, 4.0)


def test_nothing_to_do_is_said() -> None:
    lane = Lane()
    lane.take(snapshot(10, 5.0, 1000, request("1", "decode", 110)))
    lane.take(snapshot(10, 6.0, 1000))
    assert lane_words.summary(lane.work, 0.0, 0) == "Nothing is being computed."


def test_chunks_of_a_prompt_are_counted_and_the_rest_is_estimated() -> None:
    lane = Lane()
    lane.note_progress(progress(48, prompt=112))
    lane.take(snapshot(1, 1.0, 16, request("1", "prefill", 48)))
    assert (lane.rows[0].chunk, lane.rows[0].chunks) == (1, 5)
    lane.note_progress(progress(80, prompt=112))
    lane.take(snapshot(2, 1.1, 48, request("1", "prefill", 80)))
    assert (lane.rows[0].chunk, lane.rows[0].chunks) == (2, 3)
    assert sentence(lane.rows[0]) == "chunk 2 of 3 · 80 of 100 tokens · 32 from cache"


def test_chunks_begin_again_after_a_preemption() -> None:
    lane = Lane()
    lane.note_progress(progress(80))
    lane.note_progress(progress(100))
    lane.note_progress(progress(64))
    lane.take(snapshot(2, 1.1, 48, request("1", "prefill", 64)))
    assert lane.rows[0].chunk == 1


def test_prompt_seen_from_the_middle_has_no_chunk_number() -> None:
    lane = Lane()
    lane.take(snapshot(2, 1.1, 48, request("1", "prefill", 64)))
    assert sentence(lane.rows[0]) == "64 of 100 tokens · 32 from cache"


def test_wait_for_room_names_whose_end_makes_it() -> None:
    model = PoolModel.from_snapshot(four_conversations().snapshot())
    running = [row(str(n), "decode") for n in (1, 2, 3, 4)]
    own = {
        r: sum(int(model.ref_count[b]) == 1 for b in model.tables[r].blocks)
        for r in ("r1", "r2", "r3", "r4")
    }
    waiting = row("5", "waiting", waits_for="capacity", blocks_short=own["r2"])
    first = next(c for r, c in (("r1", "c1"), ("r2", "c2")) if own[r] >= own["r2"])
    assert freed_by(model, running, waiting) == (first,)
    more = replace(waiting, blocks_short=max(own.values()) + 1)
    assert len(freed_by(model, running, more)) == 2
    never = replace(waiting, blocks_short=sum(own.values()) + 1)
    assert freed_by(model, running, never) == ()
    said = lane_words.sentence(waiting, [*running, waiting], model, Numbers())
    number = first[1:]
    assert said == (
        f"Pool full: {own['r2']} blocks short. Goes on when conversation {number} ends."
    )


def test_other_waits_are_explained() -> None:
    twin = sentence(row("2", "waiting", waits_for="twin"), row("1", "prefill"))
    assert twin == "Waits for blocks that conversation 1 is computing: both will share them."
    assert sentence(row("2", "waiting", waits_for="batch_full")) == (
        "Waits for a place in the batch."
    )
    assert sentence(row("2", "waiting")) == "Its turn comes with the next step."
    preempted = sentence(row("2", "preempted", waits_for="capacity", blocks_short=999))
    assert preempted.startswith("Pool full: 999 blocks short. Goes on when other requests end. ")
    assert preempted.endswith("It gave up its blocks; it will be computed again.")


def test_a_wait_for_blocks_names_who_computes_them() -> None:
    first, second = request("1", "prefill", 40), request("2", "prefill", 40)
    third = request("3", "waiting", 0, waits_for="twin")
    lane = Lane()
    lane.note_waiting(RequestWaiting("r3", "c3", WaitReason.TWIN, 0, "r2"))
    lane.take(snapshot(10, 1.0, 500, first, second, third))
    assert [found.waits_on for found in lane.rows] == ["", "", "c2"]
    assert "conversation 2 is computing" in sentence(lane.rows[2], *lane.rows[:2])
    # Of two that read, nobody knows which.
    unknown = replace(lane.rows[2], waits_on="")
    assert sentence(unknown, *lane.rows[:2]).startswith("Waits for blocks that another request")


def test_decoding_says_how_far_it_is() -> None:
    assert sentence(row("2", "decode", output=7)) == (
        "7 tokens so far, after a prompt of 100 tokens."
    )


def test_one_that_has_ended_does_not_wait_for_its_turn() -> None:
    # A step in flight may still read its blocks, so that the snapshot has it.
    lane = Lane()
    lane.take(snapshot(10, 1.0, 500, request("1", "decode", 110), request("2", "finished", 120)))
    assert [found.request_id for found in lane.rows] == ["r1"]
