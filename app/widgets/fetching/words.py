"""What the fetching page says: errors, states of a fetch, what a choice needs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from app.fetching.catalogue import Choice, Kind, SearchResult, Unusable
from app.fetching.partial import SPARE_BYTES
from app.fetching.queue import JobView
from app.fetching.run import State
from app.fetching.tokens import Place
from app.i18n import tr, tr_n
from app.markdown_inline import visible_text
from app.widgets.library.words import count_words, size_words
from app.widgets.words import SEPARATOR
from engine.api.errors import ErrorInfo

Numbers = Mapping[str, int | float | str]
Words = tuple[str, str]
_TIGHT = 0.85
_MAX_NUMBERS = 8


def error_words(error: ErrorInfo) -> Words:
    """(cause, what to do) in the user's language."""
    describe = _ERRORS.get(error.code)
    if describe is None:
        return tr("Something went wrong inside Quire."), tr("Please report this with the log.")
    try:
        return describe(dict(error.numbers))
    except (KeyError, ValueError):
        return error.message, error.action


def _unreachable(n: Numbers) -> Words:
    host = n.get("host")
    if host is None:
        return tr("The proxy cannot be used: {reason}", reason=n["reason"]), _network()
    return tr("{host} cannot be reached.", host=host), _network()


def _network() -> str:
    return tr("Check the network. Models on this computer work without it.")


def _wrong_size(n: Numbers) -> Words:
    return (
        tr(
            "{name}: {actual} bytes came, but the hub says {expected}.",
            name=_name(n),
            actual=f"{n['actual']:,}",
            expected=f"{n['expected']:,}",
        ),
        tr("Try again. If it stays, the file on the hub is at fault."),
    )


def _disk_full(n: Numbers) -> Words:
    return (
        tr(
            "The disk is full: {needed} more are needed, {free} are free.",
            needed=size_words(int(n["needed"])),
            free=size_words(int(n["free"])),
        ),
        tr("Free some disk space, then resume. What was fetched is kept."),
    )


def _name(n: Numbers) -> str:
    return visible_text(str(n["name"]))


_ERRORS: Mapping[str, Callable[[Numbers], Words]] = {
    "hub_unreachable": _unreachable,
    "hub_offline_mode": lambda _n: (
        tr("The environment forbids the network (HF_HUB_OFFLINE)."),
        tr("Start Quire without HF_HUB_OFFLINE to use the hub."),
    ),
    "hub_connection_lost": lambda n: (
        tr("The connection to {host} broke off.", host=n["host"]),
        tr("Try again; what was fetched is kept."),
    ),
    "hub_trouble": lambda n: (
        tr("{host} has trouble (error {status}).", host=n["host"], status=n["status"]),
        tr("Try again later; what was fetched is kept."),
    ),
    "hub_rate_limited": lambda n: (
        tr("The hub asks to wait {n} s: too many requests.", n=n["seconds"]),
        tr("An access token raises the limit."),
    ),
    "hub_token_refused": lambda n: (
        tr("{host} refuses: the access token is missing, wrong or not enough.", host=n["host"]),
        tr("Enter an access token that may read this model."),
    ),
    "hub_gated": lambda n: (
        tr("{host} gives this model only to those who accept its terms.", host=n["host"]),
        tr("Accept the terms on the model's page, and enter an access token."),
    ),
    "hub_not_found": lambda n: (
        tr("{host} has no such model or file.", host=n["host"]),
        tr("Search again: it was renamed, removed, or is private."),
    ),
    "hub_answer": lambda n: (
        tr("{host} answers in a way that Quire does not understand.", host=n["host"]),
        tr("Check the address of the hub in the settings."),
    ),
    "fetch_unsafe_name": lambda n: (
        tr("The hub lists a file with a name that cannot be kept: {name}", name=_name(n)),
        tr("Choose another repository."),
    ),
    "fetch_disk_full": _disk_full,
    "fetch_write": lambda n: (
        tr("The model folder cannot be written: {reason}", reason=n["reason"]),
        tr("Check the model folder and its permissions, then resume."),
    ),
    "fetch_wrong_size": _wrong_size,
    "fetch_checksum": lambda n: (
        tr("{name} came damaged: its checksum is not the one that the hub says.", name=_name(n)),
        tr("Nothing of it was kept. Try again."),
    ),
    "fetch_in_use": lambda n: (
        tr("Another Quire window is fetching {name}.", name=_name(n)),
        tr("Wait until it is done."),
    ),
}


def described_codes() -> frozenset[str]:
    """The errors that have words here."""
    return frozenset(_ERRORS)


# --- searching ---


def result_words(result: SearchResult) -> str:
    """The second line of a result: parameters, downloads, licence, whether terms are asked."""
    parts = [
        count_words(result.num_parameters) if result.num_parameters else "",
        tr_n("{n} download", "{n} downloads", result.downloads),
        visible_text(result.licence) or tr("no licence stated"),
        tr("terms to accept") if result.gated else "",
    ]
    return SEPARATOR.join(part for part in parts if part)


def kind_words(kind: Kind | None) -> str:
    """A form of models, for choosing what to search for."""
    return {
        Kind.GGUF: tr("GGUF: one file or a few, often small"),
        Kind.SAFETENSORS: tr("Safetensors: the full weights"),
        None: tr("All"),
    }[kind]


# --- one choice ---


def choice_words(choice: Choice) -> str:
    """Its name in the list."""
    if choice.kind is Kind.SAFETENSORS:
        return tr_n("Full weights ({n} file)", "Full weights ({n} files)", len(choice.files))
    key = visible_text(choice.key)
    return key if choice.num_parts == 1 else tr("{name} ({n} parts)", name=key, n=choice.num_parts)


def unusable_words(choice: Choice) -> str:
    """Why it cannot be fetched; empty if it can."""
    if choice.unusable is Unusable.INCOMPLETE:
        return tr_n(
            "Part {parts} of {count} is not on the hub.",
            "Parts {parts} of {count} are not on the hub.",
            len(choice.missing),
            parts=_numbers(choice.missing),
            count=choice.num_parts,
        )
    if choice.unusable is Unusable.NO_CONFIG:
        return tr("Without config.json, which Quire needs.")
    return ""


def _numbers(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:_MAX_NUMBERS]))
    return f"{shown}, …" if len(numbers) > _MAX_NUMBERS else shown


def fits_disk(choice: Choice, there: int, free: int | None) -> bool:
    """Whether the rest of it fits on the disk."""
    return free is None or choice.total_bytes - there + SPARE_BYTES <= free


def fit_words(choice: Choice, there: int, free_disk: int | None, free_memory: int) -> Words:
    """(the sentence, its tone: "muted", "warning" or "error")."""
    unusable = unusable_words(choice)
    if unusable:
        return unusable, "warning"
    rest = choice.total_bytes - there
    if free_disk is not None and not fits_disk(choice, there, free_disk):
        return (
            tr(
                "Does not fit on the disk: {needed} are needed, {free} are free.",
                needed=size_words(rest + SPARE_BYTES),
                free=size_words(free_disk),
            ),
            "error",
        )
    weights, free = size_words(choice.weight_bytes), size_words(free_memory)
    if choice.weight_bytes > free_memory:
        words = tr(
            "Weights {weights}, but only {free} of memory are free.", weights=weights, free=free
        )
        return words, "warning"
    if choice.weight_bytes > _TIGHT * free_memory:
        words = tr("Weights {weights} of {free} free memory: tight.", weights=weights, free=free)
        return words, "warning"
    return tr("Weights {weights} of {free} free memory: fits.", weights=weights, free=free), "muted"


def short_fit_words(choice: Choice, there: int, free_disk: int | None, free_memory: int) -> str:
    """One or two words for a row."""
    if choice.unusable is Unusable.INCOMPLETE:
        return tr("incomplete")
    if choice.unusable is not None:
        return tr("not supported")
    if there == choice.total_bytes:
        return tr("fetched")
    if not fits_disk(choice, there, free_disk):
        return tr("disk too small")
    if choice.weight_bytes > free_memory:
        return tr("too large")
    return tr("tight") if choice.weight_bytes > _TIGHT * free_memory else tr("fits")


# --- a fetch ---


def job_title(view: JobView) -> str:
    """What is fetched."""
    if view.job.kind is Kind.SAFETENSORS:
        return visible_text(view.job.repo_id)
    return visible_text(f"{view.job.repo_id}{SEPARATOR}{view.job.key}")


def job_words(view: JobView, host: str, now: float | None = None) -> str:
    """How far it is, and why it waits. ``now``: on ``time.monotonic``'s clock."""
    total, done = view.job.total_bytes, view.done_bytes
    amount = tr("{done} of {total}", done=size_words(done), total=size_words(total))
    seconds = max(0, round(view.until - (time.monotonic() if now is None else now)))
    match view.state:
        case State.QUEUED:
            return (
                tr("Waits for its turn; {amount}.", amount=amount)
                if done
                else tr("Waits for its turn.")
            )
        case State.CHECKING:
            return tr("Checking what is here: {amount}", amount=amount)
        case State.FETCHING:
            return _fetching_words(view, amount)
        case State.WAITING:
            return f"{_waiting_words(view)} {_again_words(seconds)}"
        case State.OFFLINE:
            words = tr("No connection to {host}. Goes on by itself when it is back.", host=host)
            return f"{words} {amount}"
        case State.PAUSED:
            return tr("Paused at {amount}", amount=amount)
        case State.FAILED:
            return " ".join(error_words(view.error)) if view.error is not None else ""
        case State.DONE:
            return SEPARATOR.join(
                part
                for part in (
                    tr("Fetched and checked"),
                    size_words(total),
                    visible_text(view.job.licence),
                )
                if part
            )


def _fetching_words(view: JobView, amount: str) -> str:
    parts = [amount]
    if view.speed > 0.0:
        parts.append(tr("{size}/s", size=size_words(round(view.speed))))
    if view.seconds_left is not None:
        parts.append(left_words(view.seconds_left))
    return SEPARATOR.join(parts)


def left_words(seconds: float) -> str:
    """The time left, no more precise than it can be."""
    if seconds < 90.0:
        return tr("{n} s left", n=max(1, round(seconds)))
    minutes = round(seconds / 60.0)
    if minutes < 90:
        return tr("{n} min left", n=minutes)
    return tr("{h} h {m} min left", h=minutes // 60, m=minutes % 60)


def _waiting_words(view: JobView) -> str:
    code = "" if view.error is None else view.error.code
    if code == "hub_rate_limited":
        return tr("The hub asks to wait.")
    if view.error is None:
        return ""
    return error_words(view.error)[0]


def _again_words(seconds: int) -> str:
    return tr("Goes on in {time}.", time=f"{seconds // 60}:{seconds % 60:02}")


def place_words(place: Place, failed: bool) -> str:
    """Where the token is."""
    if place is Place.KEYRING:
        return tr("The token is in the system's keyring.")
    if place is Place.SESSION and failed:
        return tr("The keyring refused: the token is kept until Quire ends.")
    if place is Place.SESSION:
        return tr("This system has no keyring: the token is kept until Quire ends.")
    if failed:
        return tr("The keyring could not be read or changed.")
    return tr("No token is kept.")
