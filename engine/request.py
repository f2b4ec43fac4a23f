"""One sequence on its way through the engine. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.api.events import WaitReason
from engine.api.params import SamplingParams
from engine.block_hash import HashChain

PLACEHOLDER_TOKEN = -1
"""A sampled token whose value the device knows and the host does not yet (lag 1)."""


class Phase(StrEnum):
    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    PREEMPTED = "preempted"
    PAUSED = "paused"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Request:
    """State of one request. The scheduler and core change it; the runner only reads it.

    ``token_ids``: prompt then output; the last may be ``PLACEHOLDER_TOKEN`` while its step is in
    flight. ``num_computed_tokens``: tokens whose KV is in the pool or will be at the commit of the
    steps in flight. ``num_committed_tokens``: those whose step has been committed. ``block_table``:
    physical block of each logical block; owned by the BlockManager. ``seed`` is always set: the
    client's, or drawn by the engine. ``chain``: its block hashes, as far as they were asked for.
    ``num_published_blocks``: leading blocks whose hash needs no more publishing.
    ``num_owned_slots``: leading tokens of which the newest needs no look for a slot: its block is
    there and is the request's own. ``num_in_flight``: steps submitted and not committed that name
    it. ``twin_hash``: the block that a twin is computing for it. ``admitted``: order of admission,
    -1 before the first. ``release_cause``: its blocks go back, for this cause, at the commit of the
    last step in flight. ``paused``: computes nothing until it is resumed. ``sibling``: the first of
    several answers to one prompt, whose blocks this one shares once the prompt is computed.
    ``doubt_cause``: what it computed may be wrong, for this cause.
    """

    request_id: str
    conversation_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    seed: int
    arrival_s: float
    output_index: int = 0
    phase: Phase = Phase.WAITING
    block_table: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    num_committed_tokens: int = 0
    num_cached_tokens: int = 0
    waits_for: WaitReason = WaitReason.NONE
    blocks_short: int = 0
    waits_on: str = ""
    chain: HashChain | None = None
    twin_hash: bytes | None = None
    num_published_blocks: int = 0
    num_owned_slots: int = 0
    num_in_flight: int = 0
    num_preemptions: int = 0
    tokens_since_admission: int = 0
    inherits_focus: bool = False
    admitted: int = -1
    release_cause: str = ""
    paused: bool = False
    sibling: Request | None = None
    doubt_cause: str = ""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) - self.num_computed_tokens

    def child(self, request_id: str, conversation_id: str, seed: int, arrival_s: float) -> Request:
        """A request with the same tokens, which goes on by itself; it has no blocks yet."""
        return Request(
            request_id=request_id,
            conversation_id=conversation_id,
            token_ids=list(self.token_ids),
            num_prompt_tokens=self.num_prompt_tokens,
            params=self.params,
            seed=seed,
            arrival_s=arrival_s,
            output_index=self.output_index,
        )

    def drop_placeholders(self) -> None:
        """Takes off what was to be filled by steps that will not be committed."""
        while self.token_ids[-1] == PLACEHOLDER_TOKEN:
            self.token_ids.pop()
