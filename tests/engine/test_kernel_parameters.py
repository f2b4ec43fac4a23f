"""What a kernel is given arrives at the driver bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.triton_launcher import Driver, KernelLauncher
from tests.helpers.recorded_launch import FIXED, FUNCTION, PLAIN, STREAM, Memory, launched
from tests.helpers.recording_driver import RecordingDriver


@pytest.mark.parametrize(
    ("kind", "value", "bits"),
    [
        ("i1", 1, 0x01),
        ("i8", 200, 0xC8),
        ("i16", -2, 0xFFFE),
        ("i32", -(2**31), 0x8000_0000),
        ("i32", 2**31 - 1, 0x7FFF_FFFF),
        ("i64", -2, 0xFFFF_FFFF_FFFF_FFFE),
        ("i64", 2**40 + 1, 0x0100_0000_0001),
        ("u1", True, 0x01),
        ("u1", False, 0x00),
        ("u1", 2**40 + 1, 0x01),
        ("u8", -1, 0xFF),
        ("u16", 2**16 + 5, 0x0005),
        ("u32", 2**32 - 2, 0xFFFF_FFFE),
        ("u64", 2**64 - 3, 0xFFFF_FFFF_FFFF_FFFD),
        ("fp16", 1.5, 0x3E00),
        ("fp16", 2.0**-24, 0x0001),
        ("bf16", -2.0, 0xC000),
        ("bf16", 1.013671875, 0x3F81),  # cut off, not rounded to 0x3F82
        ("fp32", 0.1, 0x3DCC_CCCD),
        ("fp32", 3, 0x4040_0000),
        ("fp32", 1e300, 0x7F80_0000),
        ("fp32", float("-inf"), 0xFF80_0000),
        ("fp32", float("nan"), 0x7FC0_0000),
        ("f32", -0.0, 0x8000_0000),
        ("fp64", 0.1, 0x3FB9_9999_9999_999A),
        ("*fp16", 2**63 + 1, 0x8000_0000_0000_0001),
        ("*fp16", None, 0),
        ("*i1", Memory(0x7F00_1234_5678), 0x7F00_1234_5678),
        ("*bf16", Memory(0), 0),
    ],
)
def test_a_parameter_has_the_bits_of_its_type(
    recording: RecordingDriver, kind: str, value: Any, bits: int
) -> None:
    # Between two others, so that one that is written too long is seen.
    driver = launched(recording, ["i64", kind, "i64"], -1, value, -1)
    ones = 2**64 - 1
    assert [driver.parameter(number) for number in range(3)] == [ones, bits, ones]


def test_constant_arguments_are_left_out(recording: RecordingDriver) -> None:
    signature = ["constexpr", "i32", "constexpr", "constexpr", "u8", "constexpr"]
    driver = launched(recording, signature, 99, 1, None, (7, 7), 2, "x", scratch=(3, 4))
    assert [driver.parameter(number) for number in range(5)] == [1, 2, 3, 4, 0]


def test_tuples_are_parameters_one_by_one(recording: RecordingDriver) -> None:
    recording.begin_anew(["i32", "u8", "fp32", "i64"])
    signature = ["i32", ("u8", ("fp32", "constexpr"), "constexpr"), "constexpr", "i64"]
    launch = KernelLauncher(signature, Driver(str(recording.path))).launch
    fixed = (STREAM, FUNCTION, False, False, 8, 9, PLAIN, None, None, None)
    launch(1, 1, 1, *fixed, 1, (2, (1.0, "no"), "no"), (5, 5), 4)
    found = [recording.parameter(number) for number in range(6)]
    assert found == [1, 2, 0x3F80_0000, 4, 8, 9]


def test_scratch_memory_comes_last(recording: RecordingDriver) -> None:
    driver = launched(recording, ["u8"], 1, scratch=(Memory(0x1000), 0x2000))
    assert [driver.parameter(number) for number in range(3)] == [1, 0x1000, 0x2000]
    driver = launched(recording, ["u8"], 1)
    assert [driver.parameter(number) for number in range(3)] == [1, 0, 0]


def test_a_kernel_without_arguments_is_launched(recording: RecordingDriver) -> None:
    assert launched(recording, []).record.launches == 1


def test_memory_of_the_host_is_reached_where_the_device_has_it(recording: RecordingDriver) -> None:
    kinds = ["*fp32"] * 3
    launch = KernelLauncher(kinds, Driver(str(recording.path))).launch
    recording.begin_anew(kinds)
    recording.orders.mapped, recording.orders.mapped_to = 0x1000, 0x9000
    # An address that is given as a number is one of the device's.
    launch(*FIXED, Memory(0x1000), Memory(0x2000), 0x1000)
    assert [recording.parameter(number) for number in range(3)] == [0x9000, 0x2000, 0x1000]


def test_the_driver_is_not_asked_for_an_empty_tensor(recording: RecordingDriver) -> None:
    launch = KernelLauncher(["*fp32", "*fp32"], Driver(str(recording.path))).launch
    recording.begin_anew(["*fp32", "*fp32"])
    recording.orders.unreachable = 0
    launch(*FIXED, Memory(0), None)
    assert [recording.parameter(number) for number in range(2)] == [0, 0]


def test_a_tensor_on_the_cpu_is_refused(recording: RecordingDriver) -> None:
    launcher = KernelLauncher(["i32", "*fp32"], Driver(str(recording.path)))
    recording.begin_anew(["i32", "*fp32"])
    recording.orders.unreachable = 0x5000
    with pytest.raises(ValueError, match=r"parameter 1 .* on the CPU"):
        launcher.launch(*FIXED, 1, Memory(0x5000))
    assert recording.record.launches == 0


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        ("i8", -1, TypeError),
        ("i16", 2**15, TypeError),
        ("i32", 2**31, TypeError),
        ("i64", 2**63, TypeError),
        ("i32", 1.0, TypeError),
        ("u8", 1.0, TypeError),
        ("fp64", "1", TypeError),
        ("fp32", "1", TypeError),
        ("fp16", 1e6, OverflowError),
        ("*fp32", "address", TypeError),
        ("*fp32", 1.0, TypeError),
        ("*fp32", -1, TypeError),
    ],
)
def test_what_does_not_fit_its_type_is_refused(
    recording: RecordingDriver, kind: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        launched(recording, [kind], value)
    assert recording.record.launches == 0


@pytest.mark.parametrize("arguments", [(), (1,), (1, 2, 3)])
def test_another_number_of_arguments_is_refused(
    recording: RecordingDriver, arguments: tuple[int, ...]
) -> None:
    with pytest.raises(TypeError, match=f"takes 2 arguments, and gets {len(arguments)}"):
        launched(recording, ["i32", "constexpr"], *arguments)


@pytest.mark.parametrize("kind", ["tensordesc<fp16[64,64]>", "nvTmaDesc", "fp8e4nv"])
def test_a_type_that_cannot_be_passed_is_told(driver_library: Path, kind: str) -> None:
    with pytest.raises(NotImplementedError) as caught:
        KernelLauncher(["*fp16", kind], Driver(str(driver_library)))
    assert kind in str(caught.value)
    assert "without a C compiler" in str(caught.value)
