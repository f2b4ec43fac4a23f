"""A device that dies under the engine: nobody tries again, everybody is told, texts stay."""

from __future__ import annotations

import pytest

from engine.api.client import EngineHandle
from engine.api.commands import CountTokens, LoadModel
from engine.api.errors import DeviceLostError, ErrorInfo
from engine.api.events import (
    CommandFailed,
    EngineStatus,
    EngineStatusChanged,
    FinishReason,
    ModelLoaded,
    ModelLoadFailed,
    RequestFinished,
    TokensGenerated,
)
from engine.limits import describe_failure, device_lost
from engine.model_loader import ModelLoader
from tests.helpers.engine_cases import CheckedEngine
from tests.helpers.fake_loaded import fake_engine, install_fake_loader
from tests.helpers.talk import Talk, submit

FATAL = (
    "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be …",
    "CUDA error: device-side assert triggered",
    "CUDA error: unspecified launch failure",
    "CUDA error: misaligned address",
    "CUDA error: uncorrectable ECC error encountered",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm( … )`",
    "Triton Error [CUDA]: an illegal memory access was encountered",
    "CUDA error: the launch timed out and was terminated",
)
CURABLE = (
    "CUDA out of memory. Tried to allocate 2.00 GiB.",
    "CUDA error: out of memory",
    "CUDA error: invalid configuration argument",
    "CUDA error: no kernel image is available for execution on the device",
    "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
    "index 7 is out of bounds for dimension 0 with size 4",
)

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.mark.parametrize("text", FATAL)
def test_words_after_which_nothing_works(text):
    lost = device_lost(RuntimeError(text))
    assert isinstance(lost, DeviceLostError)
    assert text.splitlines()[0] in lost.message
    assert "\n" not in lost.message
    assert device_lost(lost) is lost


@pytest.mark.parametrize("text", CURABLE)
def test_words_after_which_one_can_go_on(text):
    assert device_lost(RuntimeError(text)) is None


def test_memory_that_ran_out_is_no_lost_device():
    assert describe_failure(RuntimeError(CURABLE[0])).code == "out_of_memory"


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("where", ["fail_next_submit", "fail_next_result"])
def test_no_step_is_tried_after_it(lag, where):
    engine = CheckedEngine(64, lag=lag)
    for name in "abc":
        engine.add(name, [1, 2, 3], max_tokens=10)
    for _ in range(3):
        engine.step()
    before = len(engine.runner.outputs)
    setattr(engine.runner, where, RuntimeError(FATAL[0]))
    with pytest.raises(DeviceLostError):
        engine.run()
    assert len(engine.runner.outputs) == before + (1 if lag == 0 or "submit" in where else 2)


@pytest.fixture
def handle():
    handle = EngineHandle()
    yield handle
    assert handle.owner.close(5.0)


def test_requests_end_with_the_reason_and_keep_what_they_said(handle, monkeypatch):
    engines = []

    def load(loader):
        engines.append(fake_engine())
        return engines[-1]

    monkeypatch.setattr(ModelLoader, "_load", load)
    talk, guest = Talk(handle.owner), Talk(handle.connect())
    talk.send(LoadModel(""))
    talk.until(ModelLoaded)
    guest.until(ModelLoaded)
    talk.send(submit("a", max_tokens=500))
    guest.send(submit("b", max_tokens=500))
    talk.until(TokensGenerated)
    guest.until(TokensGenerated)
    (engine,) = engines
    runner = engine.core._runner
    runner.fail_next_submit = RuntimeError(FATAL[0])
    for each, name in ((talk, "a"), (guest, "b")):
        end = each.until(RequestFinished, request_id=name)
        assert end.reason is FinishReason.ERROR
        assert end.error.code == "device_lost"
        said = tuple(each.text(name))
        assert end.turn.output_ids == said
        assert len(said) >= 1
        assert end.turn.prompt_ids == tuple(ord(char) for char in "hello engine")
        failed = each.until(EngineStatusChanged, status=EngineStatus.FAILED)
        assert failed.error.code == "device_lost"
        assert each.events.index(end) < each.events.index(failed)
    steps = len(runner.outputs)
    talk.send(submit("late"), CountTokens("", command_id="q"))
    assert talk.until(RequestFinished, request_id="late").error.code == "device_lost"
    assert talk.until(CommandFailed, command_id="q").error.code == "device_lost"
    assert len(runner.outputs) == steps


def test_requests_end_although_the_core_cannot_end_them(handle, monkeypatch):
    install_fake_loader(monkeypatch)
    talk = Talk(handle.owner)
    talk.send(LoadModel(""))
    talk.until(ModelLoaded)
    monkeypatch.setattr("engine.core.EngineCore.step", lambda core: 1 // 0)
    monkeypatch.setattr("engine.core.EngineCore.fail", lambda *rest: 1 // 0)
    talk.send(submit("a"), submit("b"))
    for name in "ab":
        end = talk.until(RequestFinished, request_id=name)
        assert end.turn is None
        assert "ZeroDivisionError" in end.error.message


def test_device_that_dies_while_a_model_loads(handle, monkeypatch):
    install_fake_loader(monkeypatch, error=DeviceLostError("dead"))
    talk = Talk(handle.owner)
    talk.send(LoadModel("", command_id="l"))
    assert talk.until(ModelLoadFailed, command_id="l").error.code == "device_lost"
    failed = talk.until(EngineStatusChanged, status=EngineStatus.FAILED)
    assert failed.error == ErrorInfo("device_lost", "dead", DeviceLostError.action)


def test_raw_error_while_a_model_loads_is_recognised(handle, monkeypatch):
    def load(loader):
        raise RuntimeError(FATAL[0])

    monkeypatch.setattr(ModelLoader, "_load", load)
    talk = Talk(handle.owner)
    talk.send(LoadModel("", command_id="l"))
    assert talk.until(ModelLoadFailed, command_id="l").error.code == "device_lost"
    talk.until(EngineStatusChanged, status=EngineStatus.FAILED)


def test_engine_that_cannot_be_imported_is_told(monkeypatch):
    def broken(name):
        raise ImportError("planted")

    monkeypatch.setattr("engine.api.client.importlib.import_module", broken)
    handle = EngineHandle()
    talk = Talk(handle.owner)
    talk.send(submit("a"))
    assert talk.until(EngineStatusChanged, status=EngineStatus.FAILED).error is not None
    talk.until(RequestFinished, request_id="a", reason=FinishReason.ERROR)
    assert handle.owner.close(5.0)
