"""A stand-in for the Hugging Face Hub on this machine: its paths, headers and refusals, from files in memory."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Answer:
    """One response."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay_s: float = 0
    """Silence before anything is sent. [s]"""
    pieces: list[bytes] | None = None
    """Body sent without a length, piece by piece."""


@dataclass
class Repo:
    """A model on the stand-in."""

    files: dict[str, bytes] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=lambda: {"main": COMMIT})
    gated: bool = False
    renamed_to: str | None = None
    sizes: dict[str, int] = field(default_factory=dict)
    """Sizes of files that exist in name only. [bytes]"""


@dataclass
class Request:
    """What was asked."""

    path: str
    headers: dict[str, str]


class Hub:
    """The stand-in: put ``repos`` in, look at ``requests`` afterwards."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.clear()

    def clear(self) -> None:
        """Forget everything but the address."""
        self.repos: dict[str, Repo] = {}
        self.requests: list[Request] = []
        self._scripted: list[tuple[str, list[Answer]]] = []
        self.serves_headers_together = False

    def script(self, path_part: str, *answers: Answer) -> None:
        """Give these answers, in turn, to requests whose path has this part; then go on as usual."""
        self._scripted.append((path_part, list(answers)))

    def answer(self, path: str, headers: dict[str, str]) -> Answer:
        self.requests.append(Request(path, headers))
        for part, answers in self._scripted:
            if part in path and answers:
                return answers.pop(0)
        parts = [unquote(part) for part in urlsplit(path).path.split("/") if part]
        if parts[:2] == ["api", "models"]:
            return self._api(parts[2:])
        if "resolve" in parts:
            at = parts.index("resolve")
            return self._file("/".join(parts[:at]), "/".join(parts[at + 2 :]), headers)
        return Answer(404)

    def _api(self, parts: list[str]) -> Answer:
        width = 1 if parts[0] in self.repos else 2
        model_id, rest = "/".join(parts[:width]), parts[width:]
        repo = self.repos.get(model_id)
        if repo is None:
            return Answer(401, {"x-error-code": "RepoNotFound", "x-error-message": "Repository not found"})
        if repo.renamed_to:
            return Answer(307, {"location": f"/api/models/{repo.renamed_to}?blobs=true"})
        if rest[:1] == ["safetensors-metadata"]:
            return self._headers_together(repo)
        commit = repo.revisions.get(rest[1] if rest[:1] == ["revision"] else "main")
        if commit is None:
            return Answer(404, {"x-error-code": "RevisionNotFound"})
        sizes = {name: len(body) for name, body in repo.files.items()} | repo.sizes
        siblings = [{"rfilename": name, "size": size} for name, size in sizes.items()]
        gated = "manual" if repo.gated else False
        info = {"id": model_id, "sha": commit, "siblings": siblings, "gated": gated} | repo.info
        return Answer(body=json.dumps(info).encode())

    def _headers_together(self, repo: Repo) -> Answer:
        if not self.serves_headers_together:
            return Answer(404)
        headers = {
            name: json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])
            for name, body in repo.files.items()
            if name.endswith(".safetensors")
        }
        return Answer(body=json.dumps({"index": {}, "headers": headers}).encode())

    def _file(self, model_id: str, name: str, headers: dict[str, str]) -> Answer:
        repo = self.repos[model_id]
        if repo.gated and "authorization" not in headers:
            return Answer(401, {"x-error-code": "GatedRepo", "x-error-message": "Access to it is restricted."})
        body = repo.files.get(name)
        if body is None:
            return Answer(404, {"x-error-code": "EntryNotFound"})
        about = {"x-repo-commit": COMMIT, "etag": '"1"'}
        if "range" not in headers:
            return Answer(200, about, body)
        first, last = (int(end) for end in headers["range"].removeprefix("bytes=").split("-"))
        return Answer(206, about, body[first : last + 1])


@contextmanager
def running_hub() -> Iterator[Hub]:
    """The stand-in behind a port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send(hub.answer(self.path, headers))

        def send(self, answer: Answer) -> None:
            stop.wait(answer.delay_s)
            try:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                if answer.pieces is None:
                    self.send_header("content-length", str(len(answer.body)))
                    self.end_headers()
                    self.wfile.write(answer.body)
                    return
                self.send_header("connection", "close")
                self.end_headers()
                for piece in answer.pieces:
                    self.wfile.write(piece)
            except OSError:
                self.close_connection = True  # the client has had enough

        def log_message(self, *_: object) -> None:
            pass

    stop = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
        thread.join()


def safetensors(tensors: dict[str, tuple[str, list[int], int]], *, padding: int = 0) -> bytes:
    """A safetensors file without its data: name → (dtype, shape, bytes)."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt", "note": "x" * padding}}
    position = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text
