"""A Hugging Face hub on this machine, with the faults that networks and servers have.

It speaks the part of the hub's HTTP interface that fetching uses: search, a repository with its
files, and the files themselves with ETag, Range and, if asked for, a redirect to another host.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from unittest.mock import patch

from huggingface_hub import close_session

from tests.helpers.hub_handler import Handler, Repo, Seen

Answer = Callable[[Handler, bytes, int], bool]
"""A fault: gets the handler, the content and the offset asked for. True if it has answered."""


class HubServer:
    """``faults``: for the next requests for content, one each; after them all goes well.

    ``api_faults``: the same for the interface. ``rate``: bytes a second, 0 for all at once.
    ``via_other_host``: content comes from another port, which is another host to a browser.
    """

    def __init__(self, repos: dict[str, Repo] | None = None) -> None:
        self.repos = repos or {}
        self.faults: list[Answer] = []
        self.api_faults: list[Answer] = []
        self.seen: list[Seen] = []
        self.token = ""
        self.rate = 0
        self.page_size = 30
        self.via_other_host = False
        self.gate = threading.Event()
        """Cleared: content stops in the middle until it is set."""
        self.gate.set()
        self.stop_at = 0
        """How many bytes come before the gate."""
        self._server: _Server | None = None
        self._other: _Server | None = None
        self._threads: list[threading.Thread] = []
        self.port = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def other_port(self) -> int:
        assert self._other is not None
        return self._other.server_port

    def start(self) -> None:
        """Listens, after the first time on the same port again."""
        self._server = self._listen(self.port)
        self.port = self._server.server_port
        self._other = self._listen(0)

    def stop(self) -> None:
        """No longer reachable; what is being sent breaks off."""
        for server in (self._server, self._other):
            if server is not None:
                server.shutdown()
                server.break_off()
                server.server_close()
        for thread in self._threads:
            thread.join()
        self._server = self._other = None
        self._threads.clear()

    @contextmanager
    def running(self) -> Iterator[HubServer]:
        with self.proxies_off():
            self.start()
            try:
                yield self
            finally:
                self.gate.set()
                self.stop()

    @contextmanager
    def proxies_off(self) -> Iterator[None]:
        """This machine is reached directly. The client of the library is one for the whole process,
        and it knows the proxies of the moment in which it was made.
        """
        direct = "127.0.0.1,localhost"
        with patch.dict(os.environ, {"NO_PROXY": direct, "no_proxy": direct}):
            close_session()
            try:
                yield
            finally:
                close_session()

    def content_requests(self) -> list[Seen]:
        """Those for content of files, in their order, without the redirects to it."""
        return [
            seen
            for seen in self.seen
            if seen.method == "GET"
            and "/resolve/" in seen.path
            and (not self.via_other_host or seen.port != self.port)
        ]

    def _listen(self, port: int) -> _Server:
        handler = type("BoundHandler", (Handler,), {"hub": self})
        server = _Server(("127.0.0.1", port), handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        self._threads.append(thread)
        return server


class _Server(ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self._connections: list[socket.socket] = []

    def process_request(self, request: socket.socket, client_address: object) -> None:
        self._connections.append(request)
        super().process_request(request, client_address)

    def break_off(self) -> None:
        """Closes every connection, those too that wait for a next request."""
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news."""


# --- faults ---


def status(code: int, **headers: str) -> Answer:
    """Answers with a status and nothing else."""
    return lambda handler, _content, _offset: handler.reply(code, **headers)


def cut_after(num_bytes: int) -> Answer:
    """Says the whole length, and closes the connection after a part."""
    return lambda handler, content, offset: handler.send_content(content, offset, num_bytes)


def ignore_range(handler: Handler, content: bytes, _offset: int) -> bool:
    """Sends everything, whatever was asked for."""
    return handler.send_content(content, 0)


def spoil(handler: Handler, content: bytes, offset: int) -> bool:
    """Sends other bytes of the same length."""
    return handler.send_content(bytes(byte ^ 0xFF for byte in content), offset)


def other_range(handler: Handler, content: bytes, offset: int) -> bool:
    """Sends another part than was asked for."""
    return handler.send_content(content, max(1, offset // 2))


def fine(_handler: Handler, _content: bytes, _offset: int) -> bool:
    """No fault, to place one later in the list."""
    return False
