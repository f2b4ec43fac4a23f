"""Everything that is known about an answer, in words."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from app.answer_facts import ASKED_FOR, CONTINUED, EDITED, Departure, departure
from app.conversation import REPEATS, Conversation, Message, MessageStatus
from app.i18n import tr, tr_n
from app.widgets.words import SEPARATOR, duration_words, error_words, limit_words
from engine.api.events import RequestUsage
from engine.api.params import SamplingParams


@dataclass(frozen=True, slots=True)
class Section:
    """Facts under one heading: (name, value) each."""

    heading: str
    rows: tuple[tuple[str, str], ...]


def repeat_words(conversation: Conversation, message: Message) -> str:
    """How an answer that was run again compares with the first one; empty for any other."""
    first_id = message.facts.get(REPEATS)
    if first_id is None or message.status is MessageStatus.STREAMING:
        return ""
    first = conversation.messages.get(str(first_id))
    if first is None:
        return tr("Run again; the first answer is not here any more")
    versions = conversation.siblings(first.message_id)
    return departure_words(departure(first, message), versions.index(first) + 1)


def departure_words(found: Departure, version: int) -> str:
    """``version``: number of the answer that it is compared with."""
    if found.is_same and found.is_cut:
        return tr("Same text as version {version}, as far as both go", version=version)
    if found.is_same:
        return tr("Same text as version {version}", version=version)
    if found.token:
        return tr(
            "Departs from version {version} at token {token} (character {char})",
            version=version,
            token=f"{found.token:,}",
            char=f"{found.char:,}",
        )
    return tr(
        "Departs from version {version} at character {char}",
        version=version,
        char=f"{found.char:,}",
    )


def origin_words(conversation: Conversation, message: Message) -> str:
    """What is special about how an answer came to be; empty for most."""
    parts = [repeat_words(conversation, message)]
    if EDITED in message.facts:
        parts.insert(0, tr("Edited by you"))
    return SEPARATOR.join(part for part in parts if part)


def fact_sections(conversation: Conversation, message: Message, dtype: str = "") -> list[Section]:
    """Everything worth knowing about an answer, under headings; empty sections are left out.

    ``dtype``: of the model that is loaded; it explains why a repeat may differ.
    """
    usage = message.usage
    sections = [
        Section(tr("How it was made"), tuple(_origin_rows(conversation, message, dtype))),
        Section(tr("Tokens"), tuple(_token_rows(message, usage)) if usage else ()),
        Section(tr("Time"), tuple(_time_rows(usage)) if usage else ()),
        Section(tr("Sampling"), tuple(_sampling_rows(message)) if message.params else ()),
    ]
    return [section for section in sections if section.rows]


def facts_text(sections: list[Section]) -> str:
    """The same as plain text, for the clipboard."""
    blocks = [
        "\n".join([section.heading, *(f"  {name}: {value}" for name, value in section.rows)])
        for section in sections
    ]
    return "\n\n".join(blocks)


def _origin_rows(conversation: Conversation, message: Message, dtype: str) -> list[tuple[str, str]]:
    rows = []
    if message.model:
        rows.append((tr("Model"), message.model))
    made = datetime.fromtimestamp(message.created_at)
    rows.append((tr("Begun"), made.strftime("%Y-%m-%d %H:%M:%S")))
    rows.append((tr("Ended"), _ending_words(message)))
    repeats = repeat_words(conversation, message)
    if repeats:
        rows.append((tr("Run again"), repeats))
        if _departs(conversation, message) and dtype in ("bfloat16", "float16"):
            words = tr(
                "In {dtype} the last bits depend on what else is computed in the same step. The "
                "deterministic setting of the engine rules that out.",
                dtype=dtype,
            )
            rows.append((tr("Why"), words))
    if EDITED in message.facts:
        rows.append((tr("Text"), tr("Edited by you")))
    if CONTINUED in message.facts:
        times = int(message.facts[CONTINUED])
        rows.append((tr("Continued"), tr_n("{n} time", "{n} times", times)))
    if ASKED_FOR in message.facts:
        count = int(message.facts[ASKED_FOR])
        rows.append((tr("Asked for together"), tr_n("{n} answer", "{n} answers", count)))
    if message.num_dropped:
        words = tr_n("{n} message", "{n} messages", message.num_dropped)
        rows.append((tr("Not read any more"), words))
    return rows


def _departs(conversation: Conversation, message: Message) -> bool:
    first = conversation.messages.get(str(message.facts.get(REPEATS)))
    return first is not None and not departure(first, message).is_same


def _ending_words(message: Message) -> str:
    if message.status is MessageStatus.STREAMING:
        return tr("Not yet")
    if message.status is MessageStatus.ERROR:
        return error_words(message.error) if message.error else tr("The answer failed.")
    if message.status is MessageStatus.STOPPED:
        return tr("Stopped by you")
    if message.status is MessageStatus.INTERRUPTED:
        return tr("Interrupted: the program ended")
    if message.limit:
        return limit_words(message.limit)
    return tr("By itself") if message.finish_reason else tr("Unknown")


def _token_rows(message: Message, usage: RequestUsage) -> list[tuple[str, str]]:
    rows = [
        (tr("Prompt"), f"{usage.prompt_tokens:,}"),
        (tr("From the cache"), f"{usage.cached_tokens:,}"),
        (tr("Computed"), f"{usage.computed_tokens:,}"),
        (tr("Recomputed after losing memory"), f"{usage.recomputed_tokens:,}"),
    ]
    answer = len(message.turn.output_ids) if message.turn is not None else 0
    if answer > usage.output_tokens:
        rows.append((tr("Answer"), f"{answer:,}"))
        rows.append((tr("Of these in the last run"), f"{usage.output_tokens:,}"))
    else:
        rows.append((tr("Answer"), f"{usage.output_tokens:,}"))
    return rows


def _time_rows(usage: RequestUsage) -> list[tuple[str, str]]:
    rows = []
    if usage.ttft_s > 0:
        rows = [
            (tr("Waiting"), duration_words(usage.queue_s)),
            (tr("Reading the prompt"), duration_words(usage.prefill_s)),
            (tr("First text after that"), duration_words(usage.first_decode_s)),
            (tr("In all to the first text"), duration_words(usage.ttft_s)),
        ]
    if usage.tokens_per_s > 0:
        rows.append((tr("Speed"), tr("{rate} tok/s", rate=f"{usage.tokens_per_s:.1f}")))
    rows.append((tr("In all"), duration_words(usage.total_s)))
    return rows


def _sampling_rows(message: Message) -> list[tuple[str, str]]:
    params = message.params
    assert params is not None
    rows = [
        (tr("Temperature"), f"{params.temperature:g}"),
        (tr("Top-k"), f"{params.top_k:,}" if params.top_k else tr("off")),
        (tr("Top-p"), f"{params.top_p:g}" if params.top_p < 1.0 else tr("off")),
        (tr("Min-p"), f"{params.min_p:g}" if params.min_p else tr("off")),
        *_penalty_rows(params),
        (
            tr("Most tokens"),
            tr("no limit") if params.max_tokens is None else f"{params.max_tokens:,}",
        ),
    ]
    if params.stop:
        rows.append((tr("Stop texts"), ", ".join(repr(stop) for stop in params.stop)))
    rows.append((tr("Seed"), tr("not known") if message.seed is None else str(message.seed)))
    return rows


def _penalty_rows(params: SamplingParams) -> list[tuple[str, str]]:
    known = (
        (tr("Repetition penalty"), params.repetition_penalty, 1.0),
        (tr("Presence penalty"), params.presence_penalty, 0.0),
        (tr("Frequency penalty"), params.frequency_penalty, 0.0),
    )
    return [(name, f"{value:g}") for name, value, off in known if value != off]
