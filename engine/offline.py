"""Offline use: prompts in, answers out, in the manner of other engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.api.errors import ErrorInfo, InvalidValueError
from engine.api.events import FinishReason, RequestFinished, RequestUsage, TokensGenerated
from engine.api.params import SamplingParams

if TYPE_CHECKING:
    from engine.core import EngineCore


@dataclass(frozen=True, slots=True)
class GenerationOutput:
    """The answer to one prompt. ``token_ids``: what was sampled, an end token included."""

    token_ids: tuple[int, ...]
    text: str
    reason: FinishReason
    usage: RequestUsage
    error: ErrorInfo | None


def generate(
    core: EngineCore,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams | Sequence[SamplingParams],
) -> list[GenerationOutput]:
    """Answers all prompts together and returns when the last one is done, in their order.

    Args:
        core: an engine without other requests.
        prompts: token ids of each prompt.
        params: for all prompts, or one for each.

    Raises:
        InvalidValueError: another number of parameters than of prompts, or the engine is busy.
        EngineError: a prompt that can never be answered; nothing has been computed then.
    """
    each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
    if len(each) != len(prompts):
        raise InvalidValueError(f"{len(each)} parameters for {len(prompts)} prompts")
    if core.requests:
        raise InvalidValueError(f"the engine has {len(core.requests)} requests already")
    names = [f"offline-{index}" for index in range(len(prompts))]
    try:
        for name, prompt, chosen in zip(names, prompts, each, strict=True):
            core.add_request(name, prompt, chosen)
    except Exception:
        for name in names:
            core.cancel(name)
        core.take_events()
        raise
    tokens: dict[str, list[int]] = {name: [] for name in names}
    texts: dict[str, list[str]] = {name: [] for name in names}
    done: dict[str, RequestFinished] = {}
    while core.has_work:
        for event in core.step():
            if isinstance(event, TokensGenerated):
                tokens[event.request_id] += event.token_ids
                texts[event.request_id].append(event.text)
            elif isinstance(event, RequestFinished):
                done[event.request_id] = event
    return [
        GenerationOutput(
            tuple(tokens[name]),
            "".join(texts[name]) + done[name].text,
            done[name].reason,
            done[name].usage,
            done[name].error,
        )
        for name in names
    ]
