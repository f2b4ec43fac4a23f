"""Several prompts in one step through the kernels, where no tiles were made along with the step."""

from __future__ import annotations

import random

import pytest
import torch

pytest.importorskip("triton")

from engine.attention import paged_triton
from engine.attention.make import make_backend
from tests.helpers.tiny_model import tiny_llama
from tests.helpers.torch_engine import TorchEngine, torch_engine

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="a model on the CPU: the kernels need Triton's interpreter"
)


def talk(engine: TorchEngine) -> list[list[int]]:
    draw = random.Random(1)
    for number, length in enumerate((11, 3, 19)):
        engine.add(f"r{number}", [draw.randrange(3, 300) for _ in range(length)], 2)
    engine.run()
    return [engine.output(f"r{number}") for number in range(3)]


@pytest.mark.parametrize("token_budget", [64, 16])
def test_each_says_what_it_says_alone(token_budget: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = tiny_llama(num_layers=2)
    engine = torch_engine(tiny, "paged_reference", token_budget=token_budget)
    runner = engine.runner
    runner._device_steps = None
    runner.attention = make_backend(
        "paged_triton",
        tiny.config,
        64,
        8,
        torch.float32,
        runner.decoder.device,
        runner.attention.cache,
    )
    chunks: list[int] = []
    prefill = paged_triton.paged_prefill_batch

    def counted(*args: object, **kw: object) -> object:
        chunks.append(1)
        return prefill(*args, **kw)

    monkeypatch.setattr(paged_triton, "paged_prefill_batch", counted)
    assert talk(engine) == talk(torch_engine(tiny, "paged_reference"))
    # Once in each layer of each step that had more than one prompt.
    assert chunks
    assert len(chunks) % 2 == 0
