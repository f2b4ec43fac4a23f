"""What a model and a pool allow, and how a step that failed is told. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.api.errors import (
    DeviceLostError,
    EngineError,
    ErrorInfo,
    InternalError,
    InvalidValueError,
    PromptExceedsPoolError,
    PromptTooLongError,
    is_out_of_memory,
    out_of_memory,
    unexpected,
)
from engine.block_manager import BlockManager
from engine.block_pool import BlockPool


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """What the core needs to know of the model. ``root``: see ``block_hash.root_hash``."""

    context_length: int
    eos_token_ids: frozenset[int]
    root: bytes
    fingerprint: str = ""


def check_prompt_size(token_ids: Sequence[int], limits: ModelLimits, manager: BlockManager) -> None:
    """Refuses a prompt that can never be answered.

    Raises:
        PromptTooLongError: no room for an output token within the model's context.
        PromptExceedsPoolError: it could not run even in an empty pool.
    """
    num_tokens, context = len(token_ids), limits.context_length
    if num_tokens == 0:
        raise InternalError("an empty prompt reached the engine")
    if num_tokens >= context:
        raise PromptTooLongError(
            f"The prompt has {num_tokens} tokens, but the model's context is {context} "
            f"and the answer needs at least one.",
            prompt_tokens=num_tokens,
            context_length=context,
        )
    if not manager.can_ever_fit(token_ids):
        raise pool_refusal(num_tokens, manager.pool)


def check_cut(num_tokens: int, num_given_tokens: int, num_all_tokens: int) -> None:
    """Refuses to take a request back to fewer tokens than it was given, or to more than it has.

    Raises:
        InvalidValueError: with the numbers.
    """
    if not num_given_tokens <= num_tokens <= num_all_tokens:
        raise InvalidValueError(
            f"num_tokens = {num_tokens}: the prompt has {num_given_tokens} tokens, with "
            f"the answer {num_all_tokens}",
            num_tokens=num_tokens,
        )


def pool_refusal(num_tokens: int, pool: BlockPool) -> PromptExceedsPoolError:
    """Why a prompt of so many tokens can never run in this pool."""
    usable = (pool.num_blocks - pool.num_pinned) * pool.block_size
    return PromptExceedsPoolError(
        f"The prompt has {num_tokens} tokens, but the cache holds only {usable} "
        f"({pool.num_blocks} blocks of {pool.block_size}, {pool.num_pinned} pinned).",
        prompt_tokens=num_tokens,
        pool_tokens=usable,
        pinned_blocks=pool.num_pinned,
    )


# What CUDA says once its context is broken, in this process for good. Texts of cudaError_t and
# cublasStatus_t as torch 2.4 to 2.13 passes them on.
_LOST = (
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "misaligned address",
    "operation not supported on global/shared address space",
    "invalid program counter",
    "device-side assert triggered",
    "unspecified launch failure",
    "the launch timed out and was terminated",
    "uncorrectable ecc error",
    "hardware stack error",
    "context is destroyed",
    "gpu is lost",
    "cublas_status_execution_failed",
    "cudnn_status_execution_failed",
    "cuda error: unknown error",
    "triton error [cuda]: unknown error",
    "driver shutting down",
)


def device_lost(error: BaseException) -> DeviceLostError | None:
    """The error to report if the device died under the engine, else None.

    After such an error every further call on the device fails in this process; running out of
    memory or asking for what is not there is none.
    """
    if isinstance(error, DeviceLostError):
        return error
    text = str(error)
    lowered = text.lower()
    if not any(words in lowered for words in _LOST):
        return None
    cause = text.splitlines()[0]
    return DeviceLostError(f"The device failed and cannot be used again: {cause}", cause=cause)


def raise_if_lost(error: Exception) -> None:
    """Lets an error that says so end the engine thread.

    Raises:
        DeviceLostError: the device died.
    """
    lost = device_lost(error)
    if lost is error:
        raise error
    if lost is not None:
        raise lost from error


def describe_failure(error: Exception) -> ErrorInfo:
    """The failure of a step in words for the user."""
    if isinstance(error, EngineError):
        return error.info()
    if is_out_of_memory(error):
        return out_of_memory(error, " while computing a step").info()
    return unexpected(error).info()
