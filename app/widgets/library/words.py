"""What the library says of a model, in words and figures."""

from __future__ import annotations

from app.error_text import describe_error
from app.i18n import sentences, tr, tr_n
from app.library.entry import ModelEntry
from app.library.rereading import Rereading
from app.library.speeds import Speed
from app.library.status import Standing
from app.markdown_inline import visible_text
from app.session_state import ModelState
from app.widgets.words import SEPARATOR, duration_words
from engine.api.events import ModelInfo, WeightsKept
from engine.api.model_description import DescriptionNote, ModelDescription

TAB_TOKENS = 8192
"""Of a conversation that is long already; the estimate says how many of these the cache holds."""

_WORTH_SAYING_S = 0.1
_LONG_TOKENS = 500


def size_words(num_bytes: int) -> str:
    """``812 bytes``, ``40 KB``, ``98 MB``, ``4.9 GB``: powers of ten, as files are sold."""
    if not num_bytes:
        return tr("{value} MB", value="0")
    if num_bytes < 1000:
        return tr_n("{n} byte", "{n} bytes", num_bytes)
    if num_bytes < 999_500:
        return tr("{value} KB", value=_two_digits(num_bytes / 1e3))
    if num_bytes < 999_500_000:
        return tr("{value} MB", value=_two_digits(num_bytes / 1e6))
    return tr("{value} GB", value=f"{num_bytes / 1e9:,.1f}")


def _two_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}"


def disk_words(entry: ModelEntry) -> str:
    """What it takes on the disk, and in how many files if it should be one."""
    size = size_words(entry.identity.file_bytes)
    if entry.num_parts == 1 or entry.is_incomplete:
        return size
    return tr("{size} in {n} parts", size=size, n=entry.num_parts)


def count_words(parameters: int) -> str:
    """``135 M``, ``7.2 B``, as models are named."""
    if parameters >= 999_500_000:
        return f"{parameters / 1e9:,.1f} B"
    return f"{parameters / 1e6:,.0f} M" if parameters >= 1_000_000 else f"{parameters:,}"


def about_words(entry: ModelEntry, shares_name: bool = False) -> str:
    """The second line of a row: family, quantisation, size, context, licence.

    ``shares_name``: another model has the same name, so that the file's is said too.
    """
    about = entry.description
    size = size_words(entry.identity.file_bytes) if entry.exists else ""
    if about is None:
        said = visible_text(entry.file_name)
        if entry.is_incomplete and entry.error is not None:
            said = describe_error(entry.error)[0]
        return SEPARATOR.join(part for part in (size, said) if part)
    context = tr("{n} tokens", n=f"{about.context_length:,}")
    file = visible_text(entry.file_name) if shares_name else ""
    parts = (file, about.family, about.quantization, size, context, about.license)
    return SEPARATOR.join(part for part in parts if part)


def standing_words(standing: Standing, state: ModelState) -> str:
    """One or two words for a row; empty for a model that simply could be loaded."""
    if standing is Standing.LOADING:
        return tr("loading {percent} %", percent=f"{state.progress * 100:.0f}")
    return {
        Standing.LOADED: tr("loaded"),
        Standing.NEXT: tr("next"),
        Standing.ASLEEP: tr("asleep"),
        Standing.ABSENT: tr("not fetched"),
        Standing.GONE: tr("gone"),
        Standing.UNREADABLE: tr("cannot be read"),
        Standing.FAILED: tr("did not load"),
        Standing.TOO_LARGE: tr("too large"),
        Standing.UNKNOWN: "…",
        Standing.PLAIN: tr("fits"),
    }[standing]


def row_words(entry: ModelEntry, standing: str, is_default: bool, about: str) -> str:
    """The whole row, for who does not see it. ``standing`` and ``about``: its words."""
    parts = [entry.name, standing, tr("default") if is_default else "", about]
    if entry.error is not None:
        parts.append(describe_error(entry.error)[0])
    return ", ".join(part for part in parts if part and part != "…")


def fit_words(about: ModelDescription) -> str:
    """What it takes of the free memory, and whether that is enough."""
    taken = size_words(about.weights_bytes + about.workspace_bytes)
    free = size_words(about.free_bytes)
    if about.fits:
        return tr("{taken} of {free} free: fits.", taken=taken, free=free)
    return tr("{taken}, but only {free} are free: does not fit.", taken=taken, free=free)


def taken_words(info: ModelInfo) -> str:
    """What the loaded model takes."""
    cache = info.num_blocks * info.block_size * info.kv_bytes_per_token
    return tr(
        "Weights {weights}, and {cache} of cache for all conversations.",
        weights=size_words(info.weights_bytes),
        cache=size_words(cache),
    )


def kept_words(info: ModelInfo) -> str:
    """How the loaded model's weights lie in memory; empty if simply as they are computed with."""
    return {
        WeightsKept.PACKED: tr("The weights are kept packed, as in the file."),
        WeightsKept.BOTH: tr("The weights are kept packed for decoding, and expanded for prompts."),
    }.get(info.weights_kept, "")


def held_words(info: ModelInfo) -> str:
    """What the loaded model's cache holds."""
    length = min(TAB_TOKENS, info.context_length)
    tabs = info.num_blocks // max(-(-length // info.block_size), 1)
    return _held(info.num_blocks, info.block_size, tabs, length)


def parts_words(about: ModelDescription) -> str:
    """What the memory is for."""
    return tr(
        "Weights {weights}, workspace {workspace}, cache {cache} per 1,000 tokens.",
        weights=size_words(about.weights_bytes),
        workspace=size_words(about.workspace_bytes),
        cache=size_words(about.kv_bytes_per_1000_tokens),
    )


def cache_words(about: ModelDescription) -> str:
    """What the rest of the memory holds: tokens, blocks, tabs of a length that fits the model."""
    if not about.num_blocks:
        return tr("No room is left for the cache.")
    length = min(TAB_TOKENS, about.context_length)
    return _held(about.num_blocks, about.block_size, about.tabs_at_context(length), length)


def _held(num_blocks: int, block_size: int, tabs: int, length: int) -> str:
    tokens = tr_n("{n} token of cache", "{n} tokens of cache", num_blocks * block_size)
    blocks = tr_n("{n} block", "{n} blocks", num_blocks)
    held = tr_n("{n} tab of {length}", "{n} tabs of {length}", tabs, length=f"{length:,}")
    return tr("{tokens} ({blocks}): {tabs}.", tokens=tokens, blocks=blocks, tabs=held)


def speed_words(speed: Speed) -> str:
    """How fast it has been here, or would about be; empty if nothing is known."""
    if speed.decode < 0.05:
        return ""
    # Two digits of what is worked out: more would promise too much.
    decode = speed.decode if speed.is_measured else float(f"{speed.decode:.1e}")
    rate = f"{decode:,.0f}" if decode >= 10.0 else f"{decode:,.1f}"
    if speed.is_measured:
        return tr("{rate} tokens/s, as measured here.", rate=rate)
    return tr("About {rate} tokens/s, judging by models that ran here.", rate=rate)


def reread_words(cost: Rereading, speed: Speed, about: ModelDescription | None = None) -> str:
    """What loading it costs the open conversations, said before; empty if nothing."""
    if not cost.num_tokens:
        return ""
    words = tr_n(
        "Nothing is lost. {n} conversation, {tokens} tokens, is read again on the next answer.",
        "Nothing is lost. {n} conversations, {tokens} tokens, are read again on their next "
        "answers.",
        cost.num_conversations,
        tokens=f"{cost.num_tokens:,}",
    )
    seconds = cost.num_tokens / speed.prefill if speed.prefill > 0.0 else 0.0
    if seconds >= _WORTH_SAYING_S:
        time = tr("That takes about {time} in all.", time=duration_words(seconds))
        words = sentences(words, time)
    elif not seconds and cost.num_tokens >= _LONG_TOKENS:
        unknown = tr("How long that takes is known once it has answered here.")
        words = sentences(words, unknown)
    if cost.num_too_long and about is not None:
        too_long = tr_n(
            "{n} of them is longer than the {context} tokens that this model reads; what is left "
            "out is said before its next answer.",
            "{n} of them are longer than the {context} tokens that this model reads; what is left "
            "out is said before their next answers.",
            cost.num_too_long,
            context=f"{about.context_length:,}",
        )
        words = sentences(words, too_long)
    return words


def note_words(about: ModelDescription) -> list[str]:
    """What a user should know of its files."""
    known = {
        DescriptionNote.REMOTE_CODE: tr(
            "Its files name Python code to run. Quire never runs it; the model is computed by "
            "Quire's own code."
        ),
        DescriptionNote.PICKLED: tr(
            "There are pickled weights beside the others. They could run code, and are not read."
        ),
        DescriptionNote.CUT_CONTEXT: tr(
            "It was made for {trained} tokens; your settings allow {context}.",
            trained=f"{about.trained_context_length:,}",
            context=f"{about.context_length:,}",
        ),
    }
    return [known[note] for note in about.notes if note in known]


def template_title(name: str, has_own: bool) -> str:
    """A chat template by its name in the engine; empty for the model's own."""
    if not name:
        return tr("The model's own") if has_own else tr("Automatic: plain text")
    proper = {
        "chatml": "ChatML",
        "llama3": "Llama 3",
        "gemma": "Gemma",
        "mistral": "Mistral",
        "phi": "Phi",
        "zephyr": "Zephyr",
        "alpaca": "Alpaca",
        "plain": tr("Plain text with “User:” and “Assistant:”"),
        "completion": tr("No chat: the text is gone on with"),
    }
    return proper.get(name, name)


def license_words(about: ModelDescription) -> str:
    """The licence, or that it is not known."""
    return about.license or tr("not stated in the file")
