"""What breaks paged engines, rows 14, 15 and 23–27: writing KV, steps in flight, drawing tokens.
Each check is run once on the code as it is, and once for each fault with that fault planted in it.
"""

import random

import numpy as np
import pytest
import torch

from engine import parity_steps, sampler
from engine.api.params import SamplingParams
from engine.batch import InputBatch
from engine.device_batch import DrawKind, HostStep
from engine.device_drawer import DeviceDrawer
from engine.device_steps import DeviceSteps
from engine.kv_cache import KVCache
from engine.model_runner import ModelRunner
from engine.parity import ParityInspector
from engine.request import Request
from engine.sampler import SampleRow
from engine.scheduler_output import ScheduledChunk, SchedulerOutput
from engine.staging import Uploads
from engine.step_inputs import Extras, Layout, Sizes, StepInputs
from kernels.reference.sample import sample as sample_kernel
from tests.helpers.faults import Case, Cases, Fault
from tests.helpers.tiny_model import TinyModel, tiny_llama
from tests.helpers.torch_engine import TorchEngine, torch_engine

CASES = Cases()
case = CASES.case
TINY: TinyModel = tiny_llama()
PROMPT = [(5 + 11 * i) % 300 + 3 for i in range(40)]


@case(
    14,
    Fault(
        InputBatch,
        "_lay_prefill",
        "self._slots[first_row:end] = table[blocks] * self._block_size + offsets",
        "self._slots[first_row:end] = -1\n"
        "    for p in range(start, start + count, self._block_size):\n"
        "        for q in range(p, min(start + count, (p // self._block_size + 1) * "
        "self._block_size)):\n"
        "            self._slots[first_row + q - start] = table[q // self._block_size] * "
        "self._block_size + q % self._block_size",
    ),
    Fault(InputBatch, "_lay_prefill", "table[blocks] *", "table[blocks[0]] *"),
)
def every_token_of_every_chunk_has_its_slot() -> None:
    for size in range(1, 9):
        batch = InputBatch(size, 8, 1)
        for start in range(2 * size):
            for count in range(1, 3 * size):
                end = start + count
                table = [7, 2, 9, 4, 1, 8, 3, 5][: -(-end // size)]
                request = Request("r", "r", [1] * end, end, SamplingParams(), 0, 0.0, 0)
                request.block_table = table
                chunk = ScheduledChunk(request, start, count, samples=True)
                step = batch.build(SchedulerOutput(1, (), (chunk,)), {})
                wanted = [table[p // size] * size + p % size for p in range(start, end)]
                assert step.slot_mapping.tolist() == wanted


@case(15, Fault(parity_steps, "difference", "(errors > bound)", "(errors > 1e30)"))
def write_that_never_reached_the_pool_is_named() -> None:
    engine = torch_engine(TINY, "paged_reference")
    original = KVCache.store

    def store_into_a_copy(cache, layer, key, value, slots):
        if layer == 1:
            # What a reshape of a tensor sliced twice gives: a copy, silently.
            cache.k_rows[layer].clone().index_copy_(0, slots, key)
            cache.v_rows[layer].clone().index_copy_(0, slots, value)
        else:
            original(cache, layer, key, value, slots)

    KVCache.store = store_into_a_copy
    try:
        engine.add("a", PROMPT, 4, conversation_id="A")
        engine.step(2)
    finally:
        KVCache.store = original
    report = ParityInspector(engine.core, engine.runner).inspect_conversation("A")
    table = engine.core.requests["a"].block_table
    assert report.first_bad_layer == 1
    assert (report.bad_block_id, report.bad_slot) == (table[0], table[0] * 8)


class Late:
    """Copies that are made only when they are waited for, or when the device gets that far."""

    def __init__(self) -> None:
        self.pending: list[LateCopy] = []

    def allocate(self, num_words: int) -> torch.Tensor:
        return torch.empty(num_words, dtype=torch.int64)

    def start(self, host: torch.Tensor, into: torch.Tensor | None):
        place = torch.empty_like(host) if into is None else into
        copy = LateCopy(self, host, place)
        self.pending.append(copy)
        return place, copy


class LateCopy:
    def __init__(self, late: Late, host: torch.Tensor, place: torch.Tensor) -> None:
        self.late, self.host, self.place = late, host, place

    def wait(self) -> None:
        while self in self.late.pending:
            copy = self.late.pending.pop(0)
            copy.place.copy_(copy.host)


@case(23, Fault(Uploads, "send", "earlier.wait()", "pass"))
def buffer_is_not_written_while_the_device_reads_it() -> None:
    draw = random.Random(23)
    late = Late()
    uploads = Uploads(late)
    sent = []
    for number in range(1000):
        arrays = [
            np.arange(number, number + draw.randint(1, 300)) for _ in range(draw.randint(1, 4))
        ]
        sizes = [array.size for array in arrays]
        values = np.concatenate(arrays)

        def write(out: np.ndarray, values: np.ndarray = values) -> None:
            out[:] = values

        sent.append((arrays, torch.split(uploads.send(sum(sizes), write), sizes)))
        if draw.random() < 0.1 and late.pending:
            draw.choice(late.pending).wait()
    while late.pending:
        late.pending[-1].wait()
    for arrays, pieces in sent:
        assert [piece.tolist() for piece in pieces] == [array.tolist() for array in arrays]


@case(
    23,
    Fault(
        DeviceSteps,
        "_draw",
        "self._batch.newest.index_copy_(0, rows, drawn.tokens.clamp(min=0))",
        "pass",
    ),
    Fault(DeviceSteps, "_known", "torch.where(ids < 0, newest, ids)", "ids.clamp(min=0)"),
)
def overlapped_steps_say_the_same() -> None:
    wanted: list[list[int]] | None = None
    for lag in (0, 1):
        draw = random.Random(5)
        engine = torch_engine(TINY, "paged_reference", lag=lag, num_blocks=40)
        in_flight(engine)
        for number in range(12):
            ids = [draw.randrange(3, 300) for _ in range(draw.randint(1, 40))]
            engine.add(f"r{number}", ids, draw.randint(1, 25))
            engine.step(draw.randint(0, 6))
        engine.run()
        found = [engine.output(f"r{number}") for number in range(12)]
        wanted = wanted or found
        assert found == wanted
    # And steps that nobody leaves in flight.
    plain = torch_engine(TINY, "paged_reference")
    draw = random.Random(5)
    ids = [draw.randrange(3, 300) for _ in range(draw.randint(1, 40))]
    plain.add("r0", ids, draw.randint(1, 25))
    plain.run()
    assert wanted is not None
    assert plain.output("r0") == wanted[0]


def in_flight(engine: TorchEngine) -> DeviceSteps:
    runner, device = engine.runner, engine.runner.decoder.device
    drawer = DeviceDrawer(sample_kernel, runner.decoder.config.vocab_size, device)
    steps = DeviceSteps(runner.compute_logits, drawer, runner._block_size, 16, 4, device)
    runner._device_steps = steps
    return steps


@case(
    24,
    Fault(Layout, "__init__", "self._padding[at[2] : at[3]] = -1", "pass"),
    Fault(
        Layout,
        "__init__",
        "self._padding[at[6] : at[7]] = padding_row",
        "self._padding[at[6] : at[7]] = 0",
    ),
)
def padding_writes_nothing() -> None:
    engine = torch_engine(TINY, "paged_reference", num_blocks=20)
    steps = in_flight(engine)
    for number in range(3):
        engine.add(f"r{number}", PROMPT[: 10 + number], 12)
    engine.step(4)
    cache = engine.runner.attention.cache
    assert cache is not None
    output = engine.core.scheduler.schedule()
    step: HostStep = steps._batch.lay(output)
    steps._send_tables(step)
    before = [layer.clone() for layer in (*cache.k, *cache.v)]
    newest = steps._batch.newest.clone()
    sizes = Sizes(decodes=4, prompt=0, samples=4, tiles=0)
    numbers = np.empty(sizes.words, np.int64)
    Layout(sizes, steps._batch.padding_row).write(step, Extras.none(), numbers)
    inputs = StepInputs.of(torch.split(torch.from_numpy(numbers), sizes.parts), 0)
    written = set(step.slots.tolist())
    with torch.inference_mode():
        steps._captured(inputs, sizes, DrawKind())
    for old, new in zip(before, (*cache.k, *cache.v), strict=True):
        changed = (old != new).flatten(2).any(-1).flatten().nonzero().flatten().tolist()
        assert set(changed) == written
    rows = set(step.rows.tolist())
    moved = (newest != steps._batch.newest).nonzero().flatten().tolist()
    assert set(moved) <= rows | {steps._batch.padding_row}
    assert len(rows) == 3
    # Nobody's row is nobody's: a request's newest token is the one that it drew.
    drawn = steps._batch.newest[inputs.rows[:3]].tolist()
    plain = torch_engine(TINY, "paged_reference", num_blocks=20)
    for number in range(3):
        plain.add(f"r{number}", PROMPT[: 10 + number], 12)
    plain.step(5)
    assert drawn == [plain.core.requests[f"r{number}"].token_ids[-1] for number in range(3)]


SEEDED = SamplingParams(temperature=1.0, seed=7, max_tokens=25)


@case(
    25,
    Fault(
        ModelRunner,
        "_sample_row",
        "request.params, request.seed,",
        "request.params, request.seed + request.num_preemptions,",
    ),
    Fault(
        sampler,
        "draw",
        "places = torch.tensor([row.output_index for row in rows]",
        "globals().setdefault('n', [0]).append(0)\n"
        "    places = torch.tensor([len(globals()['n']) for row in rows]",
    ),
)
def seeded_answer_is_the_same_however_it_was_computed() -> None:
    alone = torch_engine(TINY, "paged_reference")
    alone.core.add_request("a", PROMPT, SEEDED)
    alone.run()
    crowded = torch_engine(TINY, "paged_reference", num_blocks=12, token_budget=8)
    crowded.add("first", PROMPT[::-1], 30)
    crowded.core.add_request("a", PROMPT, SEEDED)
    crowded.run()
    assert crowded.core.metrics.num_preemptions > 0
    assert crowded.output("a") == alone.output("a")


@case(
    26,
    Fault(
        ModelRunner,
        "_sample_row",
        "history = request.token_ids",
        "history = [3] * request.num_cached_tokens + "
        "request.token_ids[request.num_cached_tokens :]",
    ),
)
def penalties_see_the_cached_part() -> None:
    params = SamplingParams(temperature=0.0, repetition_penalty=1.3, max_tokens=20)
    engine = torch_engine(TINY, "paged_reference")
    for name in ("cold", "warm"):
        engine.core.add_request(name, PROMPT, params)
        engine.run()
    assert engine.finished("warm").usage.cached_tokens > 0
    assert engine.output("warm") == engine.output("cold")


@pytest.mark.parametrize("each", CASES.all, ids=lambda each: f"{each.number}")
def test_case_holds(each: Case) -> None:
    each.holds()


@pytest.mark.parametrize(
    ("each", "fault"),
    CASES.with_faults,
    ids=[f"{each.number}-{fault.name}" for each, fault in CASES.with_faults],
)
def test_case_sees_its_fault(each: Case, fault: Fault) -> None:
    each.sees(fault)


def test_rows_say_what_is_drawn() -> None:
    row = SampleRow("r", SamplingParams(), 0, [1, 2, 3], 2)
    assert row.output_index == 1
