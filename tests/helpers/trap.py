"""Traps for whatever loads what it should not: a server that notes requests, a file that notes
being opened.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

_IN_ACCESS, _IN_OPEN = 0x1, 0x20
_NONBLOCK = os.O_NONBLOCK


class TrapServer:
    """``address`` of a server on this machine, and the paths that were asked for."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        trap = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                trap.requests.append(self.path)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_args: object) -> None:
                return

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator[TrapServer]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


class Canary:
    """A file of which every opening is noted by the kernel. Linux only."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(b"canary")
        self.path = path
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._watch = self._libc.inotify_init1(_NONBLOCK)
        mask = _IN_ACCESS | _IN_OPEN
        if self._libc.inotify_add_watch(self._watch, os.fsencode(path), mask) < 0:
            raise OSError(ctypes.get_errno(), "inotify_add_watch")

    def was_opened(self) -> bool:
        """Whether anybody opened it since it was made or last asked."""
        try:
            return bool(os.read(self._watch, 4096))
        except BlockingIOError:
            return False

    def close(self) -> None:
        os.close(self._watch)
