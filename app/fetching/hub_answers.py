"""What a hub's answers mean. Qt-free; needs no network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from app.fetching.catalogue import RemoteFile, SearchResult
from app.fetching.errors import (
    GatedError,
    HubAnswerError,
    HubTroubleError,
    NotFoundError,
    RateLimitedError,
    TokenRefusedError,
)

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub import ModelInfo

_DEFAULT_WAIT_S = 30.0
_MAX_WAIT_S = 3600.0


class RangeRefusedError(Exception):
    """The server has no byte at the offset (416), or sends other bytes than were asked for."""


def raise_for(response: httpx2.Response, host: str) -> None:
    """The error for a status, without reading what comes with it."""
    status = response.status_code
    if status < 400:
        return
    kind = response.headers.get("X-Error-Code", "")
    if status == 429:
        raise RateLimitedError(f"{host} has too many requests.", wait_s(response.headers))
    if kind == "GatedRepo":
        raise GatedError(f"{host} gives this model only to those who accept its terms.", host=host)
    if status in (401, 403):
        raise TokenRefusedError(f"{host} does not let this in ({status}).", host=host)
    if status in (404, 410):
        raise NotFoundError(f"{host} has no such model or file.", host=host)
    if status >= 500 or status == 408:
        seconds = wait_s(response.headers) if "Retry-After" in response.headers else 0.0
        raise HubTroubleError(f"{host} has trouble ({status}).", seconds, host=host, status=status)
    raise HubAnswerError(f"{host} refuses ({status}).", host=host, status=status)


def wait_s(headers: Mapping[str, str]) -> float:
    """Seconds that the server asks to wait: ``Retry-After`` as a number or a date, else the time
    left of its ``RateLimit``.
    """
    value = headers.get("Retry-After", "").strip()
    if value.isdigit():
        return min(float(value), _MAX_WAIT_S)
    with suppress(ValueError):
        until = parsedate_to_datetime(value)
        if until.tzinfo is None:
            # "-0000", and no zone at all: it is UTC, as HTTP would have it.
            until = until.replace(tzinfo=UTC)
        return min(max((until - datetime.now(UTC)).total_seconds(), 1.0), _MAX_WAIT_S)
    # "api";r=0;t=55
    limit = re.search(r";\s*t\s*=\s*(\d+)", headers.get("RateLimit", ""))
    return min(float(limit[1]), _MAX_WAIT_S) if limit else _DEFAULT_WAIT_S


def start_of(response: httpx2.Response, offset: int, size: int) -> int:
    """Where the content begins in the file."""
    if not offset or response.status_code == 200:
        return 0
    # "bytes 100-199/200"
    unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
    span, _, total = rest.partition("/")
    start = span.partition("-")[0]
    if unit != "bytes" or start != str(offset) or total not in (str(size), "*"):
        raise RangeRefusedError
    return offset


def remote_files(info: ModelInfo) -> Iterator[RemoteFile]:
    for sibling in info.siblings or ():
        if sibling.lfs is not None:
            yield RemoteFile(sibling.rfilename, sibling.lfs.size, sha256=sibling.lfs.sha256)
        elif sibling.size is not None:
            yield RemoteFile(sibling.rfilename, sibling.size, git_sha1=sibling.blob_id or "")


def licence_of(info: ModelInfo) -> str:
    card = info.card_data
    stated = card.get("license") if card is not None else None
    name = card.get("license_name") if card is not None else None
    if isinstance(stated, list):
        stated = ", ".join(map(str, stated))
    if stated in (None, "other") and name:
        return str(name)
    return str(stated) if stated else licence_tag(info.tags or ())


def licence_tag(tags: Any) -> str:
    found = [str(tag).partition(":")[2] for tag in tags if str(tag).startswith("license:")]
    return ", ".join(found)


def search_result(item: Mapping[str, Any]) -> SearchResult:
    tags = item.get("tags") or ()
    gguf, safetensors = item.get("gguf") or {}, item.get("safetensors") or {}
    return SearchResult(
        repo_id=str(item["id"]),
        downloads=int(item.get("downloads") or 0),
        licence=licence_tag(tags),
        num_parameters=int(safetensors.get("total") or gguf.get("total") or 0),
        gated=bool(item.get("gated")),
        has_gguf=bool(gguf) or "gguf" in tags,
    )
