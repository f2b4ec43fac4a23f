"""Figures and states in words."""

from __future__ import annotations

from collections.abc import Callable

from app.conversation import Message, MessageStatus
from app.error_text import describe_error
from app.i18n import sentences, tr, tr_n
from app.session_state import ModelState, ModelStatus, Outlook, RequestPhase, RequestState
from engine.api.errors import ErrorInfo
from engine.api.events import RequestUsage

SEPARATOR = " · "


def shown_title(title: str) -> str:
    """A conversation's title, or what stands for none."""
    return title or tr("New conversation")


def error_words(error: ErrorInfo) -> str:
    """Cause and action in one line of plain text."""
    return sentences(*describe_error(error))


def duration_words(seconds: float) -> str:
    """Below ten seconds with the precision that matters."""
    return f"{seconds * 1000:,.0f} ms" if seconds < 1.0 else f"{seconds:.1f} s"


def usage_words(usage: RequestUsage) -> str:
    """Tokens, speed, time to first token, tokens from cache and computed twice."""
    parts = [tr_n("{n} token", "{n} tokens", usage.output_tokens)]
    if usage.tokens_per_s > 0:
        parts.append(tr("{rate} tok/s", rate=f"{usage.tokens_per_s:.0f}"))
    if usage.ttft_s > 0:
        parts.append(tr("first token {time}", time=duration_words(usage.ttft_s)))
    if usage.prompt_tokens:
        parts.append(
            tr(
                "{cached} of {total} prompt tokens from cache",
                cached=f"{usage.cached_tokens:,}",
                total=f"{usage.prompt_tokens:,}",
            )
        )
    if usage.recomputed_tokens:
        parts.append(tr("{n} computed again", n=f"{usage.recomputed_tokens:,}"))
    return SEPARATOR.join(parts)


def request_words(state: RequestState, title_of: Callable[[str], str]) -> str:
    """What an answer waits for or does; empty while it is simply streaming."""
    if state.phase is RequestPhase.PREFILL:
        done, total = f"{state.done:,}", f"{state.total:,}"
        words = tr("Reading the prompt: {done} of {total} tokens", done=done, total=total)
        if state.cached:
            words += SEPARATOR + tr("{cached} from cache", cached=f"{state.cached:,}")
        return words
    if state.phase is not RequestPhase.WAITING:
        return ""
    other = title_of(state.waits_on) if state.waits_on else ""
    if state.reason == "capacity":
        short = tr_n(
            "Pool full: {n} block short.", "Pool full: {n} blocks short.", state.blocks_short
        )
        then = tr("Continues when “{title}” ends.", title=other) if other else ""
        return f"{short} {then or tr('Continues when another answer ends.')}"
    if state.reason == "twin" and other:
        return tr("Waits for “{title}”, which is computing the same prompt.", title=other)
    return _waiting_words().get(state.reason, tr("Waiting…"))


def _waiting_words() -> dict[str, str]:
    return {
        "loading": tr("Waits for the model to load…"),
        "batch_full": tr("Waits for a place in the batch…"),
        "twin": tr("Waits for another tab, which is computing the same prompt."),
        "paused": tr("Paused"),
        "engine_paused": tr("The engine is paused"),
        "queued": tr("Waiting…"),
        "first_answer": tr("Waits for the first answer, which is reading the same question."),
        "preempted": tr("Gave its memory to another tab; continues soon, nothing is lost."),
    }


def answer_footer(message: Message, waiting: str) -> tuple[str, str]:
    """(text, tone) of the line below an answer. ``waiting``: from ``request_words``."""
    if message.status is MessageStatus.STREAMING:
        return waiting, "muted"
    if message.status is MessageStatus.ERROR:
        words = error_words(message.error) if message.error else tr("The answer failed.")
        return words, "error"
    parts = [usage_words(message.usage)] if message.usage else []
    if message.status is MessageStatus.STOPPED:
        parts.insert(0, tr("Stopped"))
    elif message.status is MessageStatus.INTERRUPTED:
        parts.insert(0, tr("Interrupted: the program ended"))
    elif message.limit:
        parts.insert(0, limit_words(message.limit))
    tone = "warning" if message.status is MessageStatus.INTERRUPTED or message.limit else "muted"
    return SEPARATOR.join(parts), tone


def limit_words(limit: str) -> str:
    known = {
        "max_tokens": tr("Ended at the answer's token limit"),
        "context": tr("Ended: the model's context is full"),
        "pool": tr("Ended: the cache pool is full"),
    }
    return known.get(limit, limit)


def divider_words(num_dropped: int) -> str:
    """The line above the first message that the model reads."""
    return tr_n(
        "{n} earlier message is no longer read by the model",
        "{n} earlier messages are no longer read by the model",
        num_dropped,
    )


def drop_words(outlook: Outlook) -> str:
    """What a message would drop and cost, before it is sent."""
    parts = [
        tr(
            "The context is full: with this message the model stops reading {n} of the oldest "
            "messages ({tokens} tokens).",
            n=f"{outlook.dropped_messages:,}",
            tokens=f"{outlook.dropped_tokens:,}",
        )
    ]
    if outlook.recomputed_tokens:
        parts.append(
            tr_n(
                "{n} token of those that remain is computed again.",
                "{n} tokens of those that remain are computed again.",
                outlook.recomputed_tokens,
            )
        )
    parts.append(tr("Nothing is deleted."))
    return sentences(*parts)


def overflow_words(outlook: Outlook) -> str:
    """A message that does not fit, before it is sent."""
    return tr(
        "With this message the conversation has {prompt} tokens, but {limit} are the limit.",
        prompt=f"{outlook.prompt_tokens:,}",
        limit=f"{outlook.limit_tokens:,}",
    )


def stage_words(state: ModelState) -> str:
    """The stage of loading a model."""
    known = {
        "fetch": tr("Fetching the starter model"),
        "read": tr("Reading the model file"),
        "expand": tr("Unpacking the model, only this once"),
        "weights": tr("Loading weights"),
        "convert": tr("Preparing the weights"),
        "tokenizer": tr("Loading the tokenizer"),
        "warm_up": tr("Warming up"),
    }
    return known.get(state.stage, tr("Loading the model"))


def model_words(state: ModelState) -> str:
    """The model in one line."""
    if state.status is ModelStatus.READY and state.info is not None:
        info = state.info
        return SEPARATOR.join((info.name, info.device, info.dtype))
    if state.status is ModelStatus.LOADING:
        return stage_words(state)
    if state.status is ModelStatus.STARTING:
        return tr("Starting the engine")
    if state.error is not None and state.error.code == "starter_model_missing":
        return tr("No model yet")
    if state.error is not None and state.error.code in ("engine_died", "device_lost"):
        return tr("The engine has stopped")
    if state.status is ModelStatus.FAILED:
        return tr("The model could not be loaded")
    if state.is_asleep:
        return tr("Model unloaded")
    return tr("No model loaded")
