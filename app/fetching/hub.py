"""Speaking with a Hugging Face hub, through huggingface_hub. Qt-free; blocks, so never in the
window's thread.

What the library does: addresses and headers, the metadata of files (``get_hf_file_metadata``,
``model_info``), its HTTP client with proxies and certificates, and its switch HF_HUB_OFFLINE.

What it does not do, and is done here and in ``transfer.py``: its ``hf_hub_download`` (2.4) writes
to a file of a random name that it deletes when anything goes wrong, so it neither pauses nor
resumes; it cannot be cancelled; it only warns of a full disk; it never compares SHA-256. Its
listing retries up to 20 s without a network and sleeps through a 429, so searching sends the same
request directly. Xet's transfers can do none of these either and are switched off.

The library is imported on the first request: it costs a quarter of a second.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from app.fetching.catalogue import (
    Kind,
    RemoteFile,
    Repository,
    SearchPage,
    choices_of,
    has_pickles,
)
from app.fetching.errors import (
    HubAnswerError,
    NotFoundError,
)
from app.fetching.hub_answers import (
    RangeRefusedError,
    licence_of,
    raise_for,
    remote_files,
    search_result,
    start_of,
)
from app.fetching.hub_client import (
    CONNECT_S,
    READ_S,
    Body,
    HttpBody,
    client,
    host_of,
    timeout,
    translated,
    understood,
)
from app.fetching.names import folder_name

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo

DEFAULT_ENDPOINT = "https://huggingface.co"
ENDPOINT_VARIABLE = "HF_ENDPOINT"
PAGE_SIZE = 30
_EXPAND = ("downloads", "gated", "gguf", "safetensors", "tags")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def endpoint_of(setting: str) -> str:
    """The hub's address: the setting, else ``HF_ENDPOINT``, else Hugging Face's own."""
    return (setting or os.environ.get(ENDPOINT_VARIABLE, "") or DEFAULT_ENDPOINT).rstrip("/")


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """A file as the hub has it now: ``etag`` without quotes, ``size`` None if it does not say."""

    etag: str
    size: int | None


class Hub:
    """One hub, with the token that ``token`` returns ("" for none)."""

    def __init__(self, endpoint: str, token: Callable[[], str] = str) -> None:
        self.endpoint = endpoint
        self._token = token

    def __repr__(self) -> str:
        return f"Hub({self.endpoint!r})"

    @property
    def host(self) -> str:
        """For people."""
        return host_of(self.endpoint)

    def search(self, text: str, kind: Kind | None = None, next_url: str = "") -> SearchPage:
        """Models whose name contains ``text``, those fetched most often first; all if it is empty.

        ``next_url``: of the page before.

        Raises:
            FetchError: the hub cannot be reached, or refuses.
        """
        url = f"{self.endpoint}/api/models"
        params: dict[str, Any] | None = {
            "search": text,
            "sort": "downloads",
            "limit": PAGE_SIZE,
            "expand": list(_EXPAND),
            **({"filter": str(kind)} if kind is not None else {}),
        }
        if next_url:
            if not self._is_own(next_url):
                raise HubAnswerError("The hub's next page lies on another host.", host=self.host)
            url, params = next_url, None
        with translated(self.endpoint), understood(self.endpoint):
            response = client().get(url, params=params, headers=self._headers(), timeout=timeout())
            raise_for(response, self.host)
            items = response.json()
            results = tuple(search_result(item) for item in items)
            following = str(response.links.get("next", {}).get("url", ""))
        return SearchPage(results, following)

    def repository(self, repo_id: str, commit: str = "") -> Repository:
        """A repository with everything that can be fetched of it.

        Raises:
            FetchError: the hub cannot be reached or refuses, or names a file that cannot be kept.
        """
        folder_name(repo_id)
        with translated(self.endpoint), understood(self.endpoint):
            info = self._info(repo_id, commit)
            files = list(remote_files(info))
            return Repository(
                repo_id=repo_id,
                commit=info.sha or "main",
                licence=licence_of(info),
                gated=bool(info.gated),
                downloads=info.downloads or 0,
                choices=choices_of(files),
                has_pickles=has_pickles(s.rfilename for s in info.siblings or ()),
                page=f"{self.endpoint}/{repo_id}",
            )

    def file(self, repo_id: str, commit: str, name: str) -> RemoteFile:
        """One file as the hub lists it now.

        Raises:
            FetchError: as ``repository``; NotFoundError if it is no longer listed.
        """
        with translated(self.endpoint), understood(self.endpoint):
            for file in remote_files(self._info(repo_id, commit)):
                if file.name == name:
                    return file
        raise NotFoundError(f"{repo_id} no longer has {name}.", host=self.host, name=name)

    def metadata(self, repo_id: str, commit: str, name: str) -> FileMetadata:
        """Size and ETag of a file, without its content.

        Raises:
            FetchError: the hub cannot be reached, or refuses.
        """
        with translated(self.endpoint), understood(self.endpoint):
            from huggingface_hub import get_hf_file_metadata

            found = get_hf_file_metadata(
                self._url(repo_id, commit, name),
                token=self._sent_token() or False,
                timeout=CONNECT_S,
                endpoint=self.endpoint,
            )
        if not found.etag:
            raise HubAnswerError(f"{self.host} gives no ETag for {name}.", host=self.host)
        return FileMetadata(found.etag, found.size)

    @contextmanager
    def body(self, repo_id: str, commit: str, name: str, offset: int, size: int) -> Iterator[Body]:
        """The content from ``offset`` on, of a file of ``size`` bytes in all.

        The token goes to the hub alone; the client drops it where the hub sends it elsewhere.

        Raises:
            RangeRefusedError: this part cannot be had.
            FetchError: the hub cannot be reached, or refuses.
        """
        headers = {**self._headers(), "Accept-Encoding": "identity"}
        if offset:
            headers["Range"] = f"bytes={offset}-"
        url = self._url(repo_id, commit, name)
        with (
            translated(self.endpoint),
            client().stream(
                "GET", url, headers=headers, timeout=timeout(), follow_redirects=True
            ) as response,
        ):
            if response.status_code == 416:
                raise RangeRefusedError
            raise_for(response, self.host)
            if url.startswith("https:") and response.url.scheme != "https":
                raise HubAnswerError(f"{self.host} leaves HTTPS.", host=self.host)
            yield HttpBody(response, start_of(response, offset, size))

    def probe(self) -> None:
        """Returns if the hub answers, whatever it says.

        Raises:
            FetchError: it cannot be reached.
        """
        with translated(self.endpoint):
            client().head(self.endpoint, headers={}, timeout=timeout(), follow_redirects=False)

    def _info(self, repo_id: str, commit: str) -> ModelInfo:
        from huggingface_hub import HfApi

        api = HfApi(self.endpoint, token=self._sent_token() or False, library_name="quire")
        return api.model_info(repo_id, revision=commit or None, files_metadata=True, timeout=READ_S)

    def _url(self, repo_id: str, commit: str, name: str) -> str:
        from huggingface_hub import hf_hub_url

        return hf_hub_url(repo_id, name, revision=commit, endpoint=self.endpoint)

    def _headers(self) -> dict[str, str]:
        token = self._sent_token()
        return {"User-Agent": "quire", **({"Authorization": f"Bearer {token}"} if token else {})}

    def _sent_token(self) -> str:
        """Never over a connection that others can read."""
        parts = urlsplit(self.endpoint)
        if parts.scheme != "https" and parts.hostname not in _LOOPBACK:
            return ""
        return self._token()

    def _is_own(self, url: str) -> bool:
        mine, other = urlsplit(self.endpoint), urlsplit(url)
        return (mine.scheme, mine.netloc) == (other.scheme, other.netloc)
