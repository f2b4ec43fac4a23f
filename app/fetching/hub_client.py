"""huggingface_hub's HTTP client: made ready, its errors as our own, a body that can be stopped.
Qt-free.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from app.fetching.errors import (
    ConnectionLostError,
    HubAnswerError,
    HubOfflineModeError,
    HubUnreachableError,
)
from app.fetching.hub_answers import raise_for

if TYPE_CHECKING:
    import httpx2

CONNECT_S = 10.0
READ_S = 20.0
"""How long may pass without a byte, before the connection counts as lost."""


class Body(Protocol):
    """The content of a file as it comes.

    ``start``: the offset of the first byte, which is 0 if the server ignored the range.
    """

    start: int

    def chunks(self) -> Iterator[bytes]:
        """The content.

        Raises:
            ConnectionLostError: it broke off.
        """

    def abort(self) -> None:
        """Ends ``chunks`` at once, with an error. Any thread."""


class HttpBody:
    """A ``Body`` that comes over HTTP."""

    def __init__(self, response: httpx2.Response, start: int) -> None:
        self.start = start
        self._response = response

    def chunks(self) -> Iterator[bytes]:
        # Some mirrors compress even what was asked for as it is.
        if self._response.headers.get("Content-Encoding", "identity") != "identity":
            return self._response.iter_bytes()
        return self._response.iter_raw()

    def abort(self) -> None:
        # Closing the response waits for its reader; a socket that is shut down wakes it.
        stream = self._response.extensions.get("network_stream")
        connection = stream.get_extra_info("socket") if stream is not None else None
        if isinstance(connection, ssl.SSLSocket):
            # Not its own shutdown, which takes the encryption away from under the reader.
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        elif isinstance(connection, socket.socket):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _prepare() -> None:
    """Makes the library quiet, whoever has imported it before."""
    os.environ.setdefault("HF_HUB_DISABLE_XET", "1")
    from huggingface_hub import constants

    # It would send facts of this machine, and ask the hub for a list of programs to look for.
    constants.HF_HUB_DISABLE_TELEMETRY = True
    # Addresses of a content network are signed: whoever reads the log could use them.
    for name in ("httpx2", "httpcore2"):
        logging.getLogger(name).setLevel(logging.WARNING)


def client() -> httpx2.Client:
    """The client that all of huggingface_hub uses; inside ``translated``.

    Raises:
        HubUnreachableError: the environment names a proxy of a kind that it cannot use.
    """
    from huggingface_hub import get_session

    try:
        return get_session()
    except (ImportError, ValueError) as error:
        reason = first_line(error)
        raise HubUnreachableError(f"The proxy cannot be used: {reason}", reason=reason) from error


def timeout() -> httpx2.Timeout:
    """For one request."""
    import httpx2

    return httpx2.Timeout(READ_S, connect=CONNECT_S)


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0] or type(error).__name__


def host_of(endpoint: str) -> str:
    """The name of a hub, for people."""
    try:
        return urlsplit(endpoint).hostname or endpoint
    except ValueError:
        # The environment may name anything; what is asked of it says that it is no address.
        return endpoint


@contextmanager
def translated(endpoint: str) -> Iterator[None]:
    """Errors of the library and of its client as our own."""
    _prepare()
    host = host_of(endpoint)
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    client()
    try:
        yield
    except OfflineModeIsEnabled as error:
        raise HubOfflineModeError(
            "The environment forbids the network (HF_HUB_OFFLINE).", host=host
        ) from error
    except HfHubHTTPError as error:
        raise_for(error.response, host)
        raise HubAnswerError(f"{host}: {first_line(error)}", host=host) from error
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
        raise HubUnreachableError(
            f"{host} cannot be reached: {first_line(error)}",
            host=host,
            reason=first_line(error),
        ) from error
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
        raise HubAnswerError(f"{endpoint!r} is no address of a hub.", host=host) from error
    except httpx2.TransportError as error:
        raise ConnectionLostError(
            f"The connection to {host} was lost: {first_line(error)}", host=host
        ) from error
    except httpx2.HTTPError as error:
        raise HubAnswerError(f"{host}: {first_line(error)}", host=host) from error


@contextmanager
def understood(endpoint: str) -> Iterator[None]:
    """An answer that is no JSON, or lacks what it must have, is an error of the hub."""
    host = host_of(endpoint)
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HubAnswerError(
            f"{host} answers in a way that Quire does not understand.", host=host
        ) from error
