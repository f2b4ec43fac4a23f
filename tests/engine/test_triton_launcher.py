"""Launches from Python reach the driver as those of the C that Triton 3.6 compiles."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from engine.limits import describe_failure, device_lost
from engine.triton_launcher import Driver, KernelLauncher
from tests.helpers.recorded_launch import FIXED, FUNCTION, PLAIN, STREAM, Memory, launched
from tests.helpers.recording_driver import RecordingDriver

OUT_OF_MEMORY, NOT_INITIALIZED, ILLEGAL_ADDRESS = 2, 3, 700


def test_grid_block_and_stream_reach_the_driver(recording: RecordingDriver) -> None:
    record = launched(recording, ["i32"], 1, metadata=(8, 1, 70_000)).record
    assert (list(record.grid), list(record.block)) == ([5, 3, 2], [256, 1, 1])
    assert (record.shared, record.num_attributes) == (70_000, 0)
    assert (record.stream, record.function) == (STREAM, FUNCTION)
    assert (record.launches, record.large_clusters) == (1, 0)


# Numbers of CUlaunchAttributeID.
COOPERATIVE, PDL = (2, 1, 0, 0), (6, 1, 0, 0)
SPREAD = (5, 1, 0, 0)


@pytest.mark.parametrize(
    ("cooperative", "pdl", "num_ctas", "expected"),
    [
        (False, False, 1, []),
        (False, True, 1, [PDL]),
        (True, False, 1, [COOPERATIVE]),
        (True, True, 1, [PDL, COOPERATIVE]),
        (False, False, 2, [(4, 2, 1, 1), SPREAD]),
        (True, True, 8, [PDL, COOPERATIVE, (4, 8, 1, 1), SPREAD]),
    ],
)
def test_attributes(
    recording: RecordingDriver,
    cooperative: bool,
    pdl: bool,
    num_ctas: int,
    expected: list[tuple[int, ...]],
) -> None:
    options = {"cooperative": cooperative, "pdl": pdl, "metadata": (4, num_ctas, 0)}
    driver = launched(recording, ["i32"], 1, **options)
    assert driver.attributes() == expected
    assert list(driver.record.grid) == [5 * num_ctas, 3, 2]
    assert driver.record.large_clusters == 0


def test_clusters_of_16_are_asked_for(recording: RecordingDriver) -> None:
    driver = launched(recording, ["i32"], 1, metadata=(4, 16, 0))
    assert driver.record.large_clusters == FUNCTION
    assert driver.attributes()[0] == (4, 16, 1, 1)


def test_a_launch_does_not_see_the_one_before(recording: RecordingDriver) -> None:
    launch = KernelLauncher(["i32", "*i8"], Driver(str(recording.path))).launch
    recording.begin_anew(["i32", "*i8"])
    metadata = ((4, 2, 9), None, None, None)
    launch(7, 7, 7, STREAM, FUNCTION, True, True, 1, 2, *metadata, -1, Memory(0x8000))
    launch(1, 1, 1, 0, 8, False, False, None, None, (1, 1, 0), None, None, None, 0, None)
    assert (recording.record.launches, recording.record.num_attributes) == (2, 0)
    assert list(recording.record.grid) == [1, 1, 1]
    assert list(recording.record.block) == [32, 1, 1]
    assert (recording.record.shared, recording.record.stream) == (0, 0)
    assert recording.record.function == 8
    assert [recording.parameter(number) for number in range(4)] == [0, 0, 0, 0]


@pytest.mark.parametrize("grid", [(0, 1, 1), (4, 0, 2), (1, 1, 0)])
def test_an_empty_grid_is_no_launch(recording: RecordingDriver, grid: tuple[int, int, int]) -> None:
    assert launched(recording, ["i32"], 1, grid=grid).record.launches == 0


@pytest.mark.parametrize("size", [0, 1])
def test_hooks_are_called_before_and_after(recording: RecordingDriver, size: int) -> None:
    launch = KernelLauncher(["i32"], Driver(str(recording.path))).launch
    recording.begin_anew(["i32"])
    seen: list[tuple[str, object, int]] = []

    def hook(name: str) -> Callable[[object], None]:
        return lambda metadata: seen.append((name, metadata, recording.record.launches))

    hooks = ("of the launch", hook("enter"), hook("exit"))
    launch(size, 1, 1, STREAM, FUNCTION, False, False, None, None, PLAIN, *hooks, 1)
    assert seen == [("enter", "of the launch", 0), ("exit", "of the launch", size)]


def test_a_thread_without_a_context_gets_the_first_devices(recording: RecordingDriver) -> None:
    launch = KernelLauncher(["*i8"], Driver(str(recording.path))).launch
    recording.begin_anew(["*i8"])

    def launch_twice() -> None:
        launch(*FIXED, Memory(0x1000))
        launch(*FIXED, Memory(0x1000))

    thread = threading.Thread(target=launch_twice)
    thread.start()
    thread.join()
    assert (recording.record.launches, recording.record.contexts_set) == (2, 1)


def test_threads_that_launch_at_once_do_not_mix(recording: RecordingDriver) -> None:
    launcher = KernelLauncher(["i64"] * 6, Driver(str(recording.path)))
    recording.begin_anew(["i64"] * 6)
    # The driver lets the others go on while it reads.
    recording.orders.delay_us = 200
    num_threads, num_launches = 4, 100

    def launch_own(number: int) -> None:
        for turn in range(num_launches):
            launcher.launch(*FIXED, *[1000 * number + turn] * 6)

    threads = [threading.Thread(target=launch_own, args=(n,)) for n in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = recording.record
    assert (record.launches, record.torn) == (num_threads * num_launches, 0)
    expected = [1000 * number + turn for number in range(num_threads) for turn in range(100)]
    assert sorted(record.history[: record.launches]) == expected


# --- errors ---


def failure(recording: RecordingDriver, **orders: int) -> RuntimeError:
    """What a launch raises if the driver answers with an error."""
    launch = KernelLauncher(["i32"], Driver(str(recording.path))).launch
    recording.begin_anew(["i32"])
    for name, status in orders.items():
        setattr(recording.orders, name, status)
    with pytest.raises(RuntimeError) as caught:
        launch(*FIXED, 1)
    return caught.value


def test_a_failed_launch_is_told_in_the_drivers_words(recording: RecordingDriver) -> None:
    error = failure(recording, launch_status=OUT_OF_MEMORY)
    assert str(error) == "Triton Error [CUDA]: out of memory (CUDA_ERROR_OUT_OF_MEMORY)"
    assert describe_failure(error).code == "out_of_memory"
    assert device_lost(error) is None


def test_a_device_that_died_is_known_by_the_error(recording: RecordingDriver) -> None:
    error = failure(recording, launch_status=ILLEGAL_ADDRESS)
    assert str(error).startswith("Triton Error [CUDA]: an illegal memory access was encountered")
    assert device_lost(error) is not None


def test_an_error_without_a_name_has_its_number(recording: RecordingDriver) -> None:
    error = failure(recording, launch_status=12345)
    assert str(error) == "Triton Error [CUDA]: unknown error (12345)"


def test_a_driver_that_is_not_ready_is_told(recording: RecordingDriver) -> None:
    assert "(3)" in str(failure(recording, context_status=NOT_INITIALIZED))
    assert recording.record.launches == 0


def test_launches_go_on_after_an_error(recording: RecordingDriver) -> None:
    launch = KernelLauncher(["i32"], Driver(str(recording.path))).launch
    recording.begin_anew(["i32"])
    with pytest.raises(TypeError):
        launch(*FIXED, 1.0)
    recording.orders.launch_status = OUT_OF_MEMORY
    with pytest.raises(RuntimeError):
        launch(*FIXED, 1)
    recording.orders.launch_status = 0
    launch(*FIXED, 2)
    assert recording.parameter(0) == 2
