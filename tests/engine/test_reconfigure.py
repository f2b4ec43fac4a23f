"""Settings of a running engine: what changes at once, what waits for the next load, and that no
answer changes with the backend in mid-sentence.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.api.errors import DeviceError, NotSupportedYetError
from engine.api.events import RequestPreempted
from engine.api.params import EngineConfig
from engine.engine_builder import build_engine
from engine.model_loader import LoadedEngine
from engine.model_runner import ModelRunner
from engine.reconfigure import AT_ONCE, Reconfigurer
from tests.helpers.tiny_gguf import TinyGguf
from tests.helpers.torch_engine import TorchEngine

CONFIG = EngineConfig(backend="paged_reference", dtype="float32", device="cpu", num_blocks=32)
PROMPTS = [[number, *range(5, 45)] for number in range(3)]


class Running:
    """An engine from a file, with settings that can be changed."""

    def __init__(self, folder: Path, config: EngineConfig = CONFIG) -> None:
        path = TinyGguf().write(folder / "tiny.gguf")
        self.loaded: LoadedEngine = build_engine(
            path, folder, config, lambda *a: None, lambda: False
        )
        runner = self.loaded.core._runner
        assert isinstance(runner, ModelRunner)
        self.runner = runner
        self.engine = TorchEngine(self.loaded.core, runner)
        assert self.loaded.reconfigurer is not None
        self.reconfigurer: Reconfigurer = self.loaded.reconfigurer

    def answers(self, switches: dict[int, str] | None = None) -> list[list[int]]:
        switches = switches or {}
        for number, prompt in enumerate(PROMPTS):
            self.engine.add(f"r{number}", prompt, 24)
        step = 0
        while self.engine.core.has_work:
            if step in switches:
                config = replace(self.reconfigurer.config, backend=switches[step])
                self.reconfigurer.configure(config)
                self.engine.events.extend(self.engine.core.take_events())
            self.engine.step()
            step += 1
        return [self.engine.output(f"r{number}") for number in range(len(PROMPTS))]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[list[int]]:
    return Running(tmp_path_factory.mktemp("undisturbed")).answers()


@pytest.mark.parametrize(
    "switches",
    [
        {3: "contiguous"},
        {1: "dense", 9: "paged_reference"},
        {2: "contiguous", 6: "dense", 11: "paged_reference", 17: "contiguous"},
        {0: "dense"},
    ],
)
def test_backend_changes_in_mid_sentence(tmp_path, undisturbed, switches):
    running = Running(tmp_path)
    assert running.answers(switches) == undisturbed
    assert running.runner.attention.name == list(switches.values())[-1]
    assert running.engine.core.config.prefix_caching == (
        running.runner.attention.name == "paged_reference"
    )
    if min(switches):
        preempted = [e for e in running.engine.events if isinstance(e, RequestPreempted)]
        assert {event.reason for event in preempted} == {"the cache was dropped"}


@pytest.mark.parametrize("wanted", ["dense", "contiguous"])
def test_a_change_that_fails_half_way_leaves_the_old_backend(
    tmp_path, undisturbed, monkeypatch, wanted
):
    running = Running(tmp_path)
    before = running.reconfigurer.info

    def short(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    for number, prompt in enumerate(PROMPTS):
        running.engine.add(f"r{number}", prompt, 24)
    running.engine.step(4)
    root = running.engine.core.limits.root
    monkeypatch.setattr(ModelRunner, "_make_device_steps", short)
    change = replace(running.reconfigurer.config, backend=wanted)
    with pytest.raises(torch.OutOfMemoryError):
        running.reconfigurer.configure(change)
    monkeypatch.undo()
    assert running.reconfigurer.info == before
    assert running.reconfigurer.config.backend == "paged_reference"
    assert running.runner.attention.name == before.backend
    assert running.engine.core.limits.root == root
    running.engine.run()
    assert [running.engine.output(f"r{number}") for number in range(3)] == undisturbed
    running.reconfigurer.configure(change)
    assert running.runner.attention.name == running.reconfigurer.info.backend == wanted


def test_pool_is_the_same_after_a_while_without(tmp_path):
    running = Running(tmp_path)
    cache = running.runner.attention.cache
    running.reconfigurer.configure(replace(CONFIG, backend="dense"))
    assert running.runner.attention.cache is None
    running.reconfigurer.configure(CONFIG)
    assert running.runner.attention.cache is cache


def test_engine_without_a_pool_gets_one(tmp_path, undisturbed):
    running = Running(tmp_path, replace(CONFIG, backend="dense"))
    assert running.answers({4: "paged_reference"}) == undisturbed
    assert running.runner.attention.cache is not None
    running.engine.add("again", PROMPTS[0], 24)
    running.engine.run()
    assert running.engine.output("again") == undisturbed[0]
    assert running.engine.finished("again").usage.cached_tokens == 32


def test_reply_names_what_changed_and_what_waits(tmp_path):
    running = Running(tmp_path)
    config = replace(
        CONFIG, backend="contiguous", token_budget=64, watermark=0.25, block_size=32, num_blocks=9
    )
    reply = running.reconfigurer.configure(config, "c1")
    assert reply.command_id == "c1"
    assert set(reply.applied) == {"backend", "token_budget", "watermark"}
    assert set(reply.needs_reload) == {"block_size", "num_blocks"}
    assert reply.config == replace(CONFIG, backend="contiguous", token_budget=64, watermark=0.25)
    assert (reply.model.backend, reply.model.backend_reason) == (
        "contiguous",
        "as the settings ask",
    )
    assert not reply.model.keeps_blocks
    core = running.engine.core
    assert core.scheduler.watermark_blocks == 8
    assert core.scheduler.guard.token_budget == 64
    assert running.reconfigurer.configure(reply.config).applied == ()


@pytest.mark.parametrize(
    ("backend", "error"), [("paged_triton", DeviceError), ("warp", NotSupportedYetError)]
)
def test_backend_that_cannot_run_changes_nothing(tmp_path, undisturbed, backend, error):
    running = Running(tmp_path)
    for number, prompt in enumerate(PROMPTS):
        running.engine.add(f"r{number}", prompt, 24)
    running.engine.step(5)
    used = running.engine.core.pool.num_used
    with pytest.raises(error):
        running.reconfigurer.configure(replace(CONFIG, backend=backend, token_budget=9))
    assert running.reconfigurer.config == CONFIG
    assert running.engine.core.pool.num_used == used
    running.engine.run()
    assert [running.engine.output(f"r{n}") for n in range(3)] == undisturbed


def test_new_salt_finds_nothing_of_the_old(tmp_path):
    running = Running(tmp_path)
    for number, salt in enumerate(("", "", "pepper", "pepper")):
        running.reconfigurer.configure(replace(CONFIG, cache_salt=salt))
        running.engine.add(f"r{number}", PROMPTS[0], 4)
        running.engine.run()
    cached = [running.engine.finished(f"r{n}").usage.cached_tokens for n in range(4)]
    assert cached == [0, 32, 0, 32]


def test_caching_can_be_switched_off_and_on(tmp_path):
    running = Running(tmp_path)
    for number, caching in enumerate((True, True, False, True, True)):
        running.reconfigurer.configure(replace(CONFIG, prefix_caching=caching))
        running.engine.add(f"r{number}", PROMPTS[0], 4)
        running.engine.run()
    cached = [running.engine.finished(f"r{n}").usage.cached_tokens for n in range(5)]
    assert cached == [0, 32, 0, 0, 32]


def test_every_setting_is_either_applied_or_named():
    assert set(EngineConfig.__dataclass_fields__) >= AT_ONCE
