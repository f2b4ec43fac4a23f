"""What a client may choose: sampling of one request, limits of the whole engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from engine.api.chat_templates import CHAT_TEMPLATES
from engine.api.errors import InvalidValueError

UINT64_MAX = 2**64 - 1
MAX_RUNNING_REQUESTS = 16_384
"""A block counts its references with 16 bits."""


def _require(ok: bool, name: str, value: object, rule: str) -> None:
    if not ok:
        raise InvalidValueError(f"{name} = {value!r}: {rule}", name=name, value=str(value))


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn and when an answer ends.

    Order of application: penalties, temperature, top-k, top-p on the renormalised rest, min-p.
    ``temperature`` 0 is greedy. ``seed`` None lets the engine draw one, which it reports.
    ``max_tokens`` None means until the context limit. ``logprobs``: of how many likeliest tokens
    besides the drawn one (None: of none, and not of that either).

    Raises:
        InvalidValueError: a field is out of its range; the error names it.
    """

    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _require(0.0 <= self.temperature <= 100.0, "temperature", self.temperature, "0 to 100")
        _require(self.top_k >= 0, "top_k", self.top_k, "0 (off) or more")
        _require(0.0 <= self.top_p <= 1.0, "top_p", self.top_p, "0 to 1")
        _require(0.0 <= self.min_p <= 1.0, "min_p", self.min_p, "0 to 1")
        _require(
            0.0 < self.repetition_penalty <= 100.0,
            "repetition_penalty",
            self.repetition_penalty,
            "above 0, at most 100",
        )
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _require(-10.0 <= value <= 10.0, name, value, "-10 to 10")
        _require(
            self.max_tokens is None or self.max_tokens >= 1,
            "max_tokens",
            self.max_tokens,
            "1 or more, or None",
        )
        _require(
            self.seed is None or 0 <= self.seed <= UINT64_MAX,
            "seed",
            self.seed,
            "0 to 2**64 - 1, or None",
        )
        _require(all(self.stop), "stop", self.stop, "no empty stop string")
        _require(
            self.logprobs is None or 0 <= self.logprobs <= 20,
            "logprobs",
            self.logprobs,
            "0 to 20, or None",
        )

    @property
    def has_penalty(self) -> bool:
        """Whether scores depend on what was said before."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    @property
    def has_filter(self) -> bool:
        """Whether some tokens are ruled out before one is drawn."""
        return self.top_k > 0 or self.top_p < 1.0 or self.min_p > 0.0


GREEDY = SamplingParams(temperature=0.0)

# Names of the same settings in other engines, accepted in settings files.
CONFIG_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "max_num_seqs": "max_running_requests",
        "max_num_batched_tokens": "token_budget",
        "num_gpu_blocks_override": "num_blocks",
        "kvcache_block_size": "block_size",
    }
)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Limits and choices of one engine.

    Units: ``block_size`` and ``token_budget`` in tokens; ``kv_cache_bytes`` in bytes (None: sized
    from free memory); ``watermark`` as a fraction of the pool kept free at admission;
    ``prefill_time_budget_ms`` is the time that prefill chunks may add to a step while others decode
    (None: as the device deserves), ``least_prefill_tokens`` what a step may compute of prompts
    however long that takes: on a GPU fewer take as long. ``lag``: steps that may be in flight while
    the next is prepared (None: 1 where a device computes by itself). ``shared_prefix_decode``: on a
    GPU, conversations with the same beginning read it once a step where that pays.
    ``weights``: whether quantised weights of a GGUF file stay ``packed`` or are ``expanded`` to the
    dtype; ``auto``: packed where that is faster or where they fit in no other way.
    ``chat_template``: one of ``CHAT_TEMPLATES`` instead of the model's own; "" for its own, or, if
    it has none, for the plainest.

    Raises:
        InvalidValueError: a field is out of its range; the error names it.
    """

    block_size: int = 16
    num_blocks: int | None = None
    kv_cache_bytes: int | None = None
    token_budget: int = 2048
    max_running_requests: int = 64
    max_model_len: int | None = None
    gpu_memory_utilization: float = 0.9
    watermark: float = 0.01
    prefill_time_budget_ms: float | None = None
    least_prefill_tokens: int | None = None
    device: str = "auto"
    dtype: str = "auto"
    backend: str = "auto"
    lag: int | None = None
    prefix_caching: bool = True
    deterministic: bool = False
    shared_prefix_decode: bool = True
    cache_salt: str = ""
    tensor_parallel_size: int = 1
    num_threads: int | None = None
    chat_template: str = ""
    weights: str = "auto"

    def __post_init__(self) -> None:
        _require(8 <= self.block_size <= 256, "block_size", self.block_size, "8 to 256")
        counts = ("num_blocks", "kv_cache_bytes", "max_model_len", "num_threads")
        for name in (*counts, "least_prefill_tokens"):
            value = getattr(self, name)
            _require(value is None or value >= 1, name, value, "1 or more, or None")
        _require(self.token_budget >= 1, "token_budget", self.token_budget, "1 or more")
        _require(
            1 <= self.max_running_requests <= MAX_RUNNING_REQUESTS,
            "max_running_requests",
            self.max_running_requests,
            f"1 to {MAX_RUNNING_REQUESTS}",
        )
        _require(
            0.0 < self.gpu_memory_utilization <= 1.0,
            "gpu_memory_utilization",
            self.gpu_memory_utilization,
            "above 0, at most 1",
        )
        _require(0.0 <= self.watermark < 1.0, "watermark", self.watermark, "0 to below 1")
        _require(
            self.prefill_time_budget_ms is None or self.prefill_time_budget_ms > 0.0,
            "prefill_time_budget_ms",
            self.prefill_time_budget_ms,
            "above 0",
        )
        dtypes = ("auto", "float64", "float32", "float16", "bfloat16")
        _require(self.dtype in dtypes, "dtype", self.dtype, f"one of {', '.join(dtypes)}")
        ways = ("auto", "packed", "expanded")
        _require(self.weights in ways, "weights", self.weights, f"one of {', '.join(ways)}")
        _require(self.lag in (None, 0, 1), "lag", self.lag, "0, 1 or None")
        _require(
            self.tensor_parallel_size == 1,
            "tensor_parallel_size",
            self.tensor_parallel_size,
            "only 1 is supported",
        )
        _require(
            self.chat_template in ("", *CHAT_TEMPLATES),
            "chat_template",
            self.chat_template,
            f"empty, or one of {', '.join(CHAT_TEMPLATES)}",
        )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> EngineConfig:
        """Builds a config from settings, taking other engines' names too (``CONFIG_ALIASES``).

        Raises:
            InvalidValueError: an unknown name, one setting given twice, or a value out of range.
        """
        known = {f.name for f in fields(cls)}
        chosen: dict[str, Any] = {}
        for name, value in values.items():
            canonical = CONFIG_ALIASES.get(name, name)
            _require(canonical in known, name, value, "there is no such setting")
            _require(canonical not in chosen, name, value, f"{canonical} is given twice")
            chosen[canonical] = value
        return cls(**chosen)


@dataclass(frozen=True, slots=True)
class TurnTokens:
    """The exact ids of one answered turn, so that the next turn appends instead of encoding again.

    ``prompt_ids``: everything fed in this turn that the turn before had not fed: the close of the
    answer before, the new messages, the header of the answer; empty if that is not known, because
    the program ended before the answer did. ``output_ids``: what was sampled, with its end token if
    one was sampled. ``covered_chars``: how many characters of the answer's
    content the output ids stand for (a stop string may leave a rest that has to be encoded again).
    ``fingerprint``: of the tokenizer and chat template; ids are used only with the same one.
    """

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    covered_chars: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation as the engine sees it.

    ``role``: ``system``, ``user`` or ``assistant``. ``turn`` only on assistant messages: the exact
    ids of the turn that this answer ended, as reported by ``RequestFinished.turn``.
    """

    role: str
    content: str
    turn: TurnTokens | None = field(default=None, repr=False)


class OverflowPolicy(StrEnum):
    """What happens to a conversation whose prompt no longer fits.

    ``STOP``: it is refused. ``DROP_OLDEST``: the model no longer reads the oldest messages.
    """

    STOP = "stop"
    DROP_OLDEST = "drop_oldest"


@dataclass(frozen=True, slots=True)
class ContextPolicy:
    """How a conversation meets the model's context limit.

    ``num_dropped``, with DROP_OLDEST only: the cut that is in force, as the conversation's last
    ``ContextCut.num_messages`` reported it. Kept from turn to turn, so that the cache is hit.

    Raises:
        InvalidValueError: a negative number.
    """

    overflow: OverflowPolicy = OverflowPolicy.STOP
    num_dropped: int = 0

    def __post_init__(self) -> None:
        _require(self.num_dropped >= 0, "num_dropped", self.num_dropped, "0 or more")


@dataclass(frozen=True, slots=True)
class ContextCut:
    """What a prompt leaves out of its conversation.

    ``num_messages``: the oldest messages, not counting the leading system message. ``new_messages``
    of them, ``new_tokens`` tokens, were still read in the turn before.
    """

    num_messages: int = 0
    new_messages: int = 0
    new_tokens: int = 0
