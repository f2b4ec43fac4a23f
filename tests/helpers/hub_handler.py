"""What the hub on this machine answers: its interface, and content with ETag and Range."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

if TYPE_CHECKING:
    from tests.helpers.hub_server import HubServer


def git_sha1(content: bytes) -> str:
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


@dataclass
class Repo:
    """``files``: content by name; those over ``lfs_over`` bytes are large files with SHA-256.

    ``lies``: what the listing says instead, by name: ("size" or "sha256", value).
    """

    files: dict[str, bytes]
    licence: str = "apache-2.0"
    gated: bool = False
    commit: str = "c" * 40
    downloads: int = 1234
    num_parameters: int = 0
    tags: tuple[str, ...] = ()
    lfs_over: int = 1000
    etags: dict[str, str] = field(default_factory=dict)
    lies: dict[str, tuple[str, object]] = field(default_factory=dict)

    def is_large(self, name: str) -> bool:
        return len(self.files[name]) > self.lfs_over

    def etag(self, name: str) -> str:
        if name in self.etags:
            return self.etags[name]
        content = self.files[name]
        return hashlib.sha256(content).hexdigest() if self.is_large(name) else git_sha1(content)

    def siblings(self) -> list[dict[str, object]]:
        return [self._sibling(name) for name in self.files]

    def _sibling(self, name: str) -> dict[str, object]:
        content = self.files[name]
        what, value = self.lies.get(name, ("", None))
        size = value if what == "size" else len(content)
        found: dict[str, object] = {"rfilename": name, "size": size, "blobId": git_sha1(content)}
        if self.is_large(name):
            sha256 = value if what == "sha256" else hashlib.sha256(content).hexdigest()
            found["lfs"] = {"sha256": sha256, "size": size, "pointerSize": 130}
        return found


@dataclass
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    port: int

    @property
    def range(self) -> str:
        return self.headers.get("range", "")


class Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def log_message(self, *_args: object) -> None:
        return

    def _serve(self) -> None:
        hub = self.hub
        headers = {name.lower(): value for name, value in self.headers.items()}
        port = self.server.server_address[1]
        hub.seen.append(Seen(self.command, self.path, headers, port))
        parts = urlsplit(self.path)
        if parts.path.startswith("/api/models"):
            if hub.api_faults and hub.api_faults.pop(0)(self, b"", 0):
                return
            self._serve_api(unquote(parts.path), parse_qs(parts.query))
        elif "/resolve/" in parts.path:
            self._serve_file(unquote(parts.path).lstrip("/"))
        else:
            self.reply(200, b"hub")

    def reply(self, status: int, body: bytes = b"", **headers: str) -> bool:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        return True

    # --- the interface ---

    def _serve_api(self, path: str, query: dict[str, list[str]]) -> None:
        name = path.removeprefix("/api/models").strip("/")
        if not name:
            self._search(query)
            return
        repo_id, _, revision = name.partition("/revision/")
        repo = self.hub.repos.get(repo_id)
        if repo is None or (revision and revision not in (repo.commit, "main")):
            self.reply(404, b"{}", X_Error_Code="RepoNotFound")
            return
        self._json(
            {
                "id": repo_id,
                "sha": repo.commit,
                "gated": "auto" if repo.gated else False,
                "downloads": repo.downloads,
                "tags": [f"license:{repo.licence}", *repo.tags],
                "cardData": {"license": repo.licence},
                "siblings": repo.siblings(),
            }
        )

    def _search(self, query: dict[str, list[str]]) -> None:
        text = query.get("search", [""])[0].lower()
        wanted = query.get("filter", [""])[0]
        start = int(query.get("start", ["0"])[0])
        found = [
            {
                "id": repo_id,
                "downloads": repo.downloads,
                "gated": "manual" if repo.gated else False,
                "tags": [f"license:{repo.licence}", *repo.tags],
                **({"gguf": {"total": repo.num_parameters}} if "gguf" in repo.tags else {}),
            }
            for repo_id, repo in self.hub.repos.items()
            if text in repo_id.lower() and (not wanted or wanted in repo.tags)
        ]
        found.sort(key=lambda item: -int(item["downloads"]))
        end = start + self.hub.page_size
        link = f'<{self.hub.endpoint}/api/models?search={text}&start={end}>; rel="next"'
        self._json(found[start:end], **({"Link": link} if end < len(found) else {}))

    def _json(self, value: object, **headers: str) -> None:
        self.reply(200, json.dumps(value).encode(), Content_Type="application/json", **headers)

    # --- content ---

    def _serve_file(self, path: str) -> None:
        hub = self.hub
        repo_id, _, rest = path.partition("/resolve/")
        _revision, _, name = rest.partition("/")
        repo = hub.repos.get(repo_id)
        if repo is None or name not in repo.files:
            self.reply(404, X_Error_Code="EntryNotFound")
            return
        is_other = self.server.server_address[1] != hub.port
        if repo.gated and not is_other and not self._may(repo):
            return
        content = repo.files[name]
        linked = {
            "X_Repo_Commit": repo.commit,
            "X_Linked_Size": str(len(content)),
            "X_Linked_Etag": f'"{repo.etag(name)}"',
        }
        if hub.via_other_host and not is_other:
            where = f"http://127.0.0.1:{hub.other_port}/{path}?Signature=secret-signature"
            self.reply(302, Location=where, **linked)
            return
        if self.command == "HEAD":
            self.send_response(200)
            self.send_header("ETag", f'"{repo.etag(name)}"')
            self.send_header("X-Repo-Commit", repo.commit)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            return
        offset = self._offset()
        if hub.faults and hub.faults.pop(0)(self, content, offset):
            return
        if offset >= len(content) > 0:
            self.reply(416, Content_Range=f"bytes */{len(content)}")
            return
        self.send_content(content, offset)

    def _may(self, repo: Repo) -> bool:
        sent = self.headers.get("Authorization", "")
        if sent == f"Bearer {self.hub.token}" and self.hub.token:
            return True
        status = 403 if sent else 401
        self.reply(status, b'{"error": "gated"}', X_Error_Code="GatedRepo")
        return False

    def _offset(self) -> int:
        value = self.headers.get("Range", "")
        return int(value.removeprefix("bytes=").partition("-")[0]) if value else 0

    def send_content(self, content: bytes, offset: int, length: int | None = None) -> bool:
        """The content from ``offset`` on. ``length``: break off after that many bytes."""
        self.send_response(206 if offset else 200)
        if offset:
            span = f"bytes {offset}-{len(content) - 1}/{len(content)}"
            self.send_header("Content-Range", span)
        self.send_header("Content-Length", str(len(content) - offset))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        rest = content[offset:] if length is None else content[offset : offset + length]
        self._send_slowly(rest)
        if len(rest) < len(content) - offset:
            self.close_connection = True
        return True

    def _send_slowly(self, rest: bytes) -> None:
        hub = self.hub
        if not hub.gate.is_set():
            self.wfile.write(rest[: hub.stop_at])
            self.wfile.flush()
            rest = rest[hub.stop_at :]
            while not hub.gate.wait(0.02):
                if hub._server is None:
                    self.close_connection = True
                    return
        if not hub.rate:
            self.wfile.write(rest)
            return
        step = max(1, hub.rate // 50)
        for start in range(0, len(rest), step):
            self.wfile.write(rest[start : start + step])
            self.wfile.flush()
            time.sleep(0.02)
