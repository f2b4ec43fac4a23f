"""Transformers' own model as the judge of the engine's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from engine.model_runner import ModelRunner
from tests.helpers.runner_driver import RunnerDriver


def reference_greedy(reference: Any, prompt: Sequence[int], count: int) -> list[int]:
    """The ``count`` tokens that transformers' model draws."""
    with torch.inference_mode():
        ids = reference.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.int64),
            max_new_tokens=count,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
    new: list[int] = ids[0, len(prompt) :].tolist()
    return new


def logit_error(driver: RunnerDriver, reference: Any, prompt: Sequence[int]) -> float:
    """Largest difference of logits over a prompt computed in chunks of five."""
    runner = driver.runner
    assert isinstance(runner, ModelRunner)
    logits: list[torch.Tensor] = []
    compute = runner.compute_logits

    def record(batch: Any) -> torch.Tensor:
        rows = torch.arange(len(batch.input_ids))
        attend = runner.attention.begin_step(batch)
        out = runner.decoder.forward(batch.input_ids, batch.positions, attend, rows)
        logits.append(out.clone())
        return out[batch.sample_rows]

    runner.compute_logits = record  # type: ignore[method-assign]
    steps = runner._device_steps
    graphs = None if steps is None else steps.graphs
    if steps is not None:
        # A replayed step passes the recorder by.
        steps.graphs = None
    request = driver.request("logits", prompt)
    driver.prefill(request, 5)
    driver.finish(request)
    runner.compute_logits = compute  # type: ignore[method-assign]
    if steps is not None:
        steps.graphs = graphs
    # A backend without a pool computes some tokens again: the last of them count.
    found = torch.cat(logits)[-len(prompt) :]
    with torch.inference_mode():
        want = reference(torch.tensor([list(prompt)])).logits[0]
    # The engine may have computed on a GPU, the reference has not.
    return float((found.cpu().double() - want.double()).abs().max())
