"""A Hugging Face Hub on this machine: repositories in memory, served as the pinned clients ask.

The routes, headers and error codes are those that `huggingface_hub` and `datasets` read; a client is
sent here by HF_ENDPOINT. Files of Git LFS are redirected to another host name (`localhost`), as the
Hub redirects to its CDN. Xet is not offered. Every request is logged, and faults can be ordered.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import sys
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

LFS = (".safetensors", ".bin", ".h5", ".msgpack", ".onnx", ".parquet")
"""Endings of files that the Hub keeps in LFS."""
PAGE = 4
"""Entries of a tree listing a page (the Hub: 1,000), so that following the pages is needed."""
ROUTE = re.compile(
    r"/api/(?P<api>models|datasets)/(?P<api_id>[^/]+/[^/]+)"
    r"(?:/(?P<what>revision|tree|paths-info)/(?P<api_revision>[^/]+)(?:/(?P<folder>.*))?)?"
    r"|/(?P<data>datasets/)?(?P<id>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)"
)


class Request(NamedTuple):
    """What a client asked for."""

    method: str
    path: str
    """Unquoted, with the query."""
    range: str | None
    status: int


@dataclass
class Repository:
    """The files of each commit; `main` is the newest one."""

    id: str
    kind: str
    """`models` or `datasets`."""
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: int | None = None
    """Status that files are refused with: 401 without a token, 403 with one that is not let in."""

    def commit(self, revision: str) -> str | None:
        return next(reversed(self.commits)) if revision == "main" else self._known(revision)

    def _known(self, revision: str) -> str | None:
        return revision if revision in self.commits else None


@dataclass
class Fault:
    """What to answer instead, to requests whose `METHOD path` the pattern matches."""

    pattern: str
    status: int | None = None
    """An error's; None cuts the connection in the middle of the body."""
    headers: dict[str, str] = field(default_factory=dict)
    times: int | None = None
    """How often; None: always."""


class FakeHub:
    """The server, its repositories and its log; a context manager."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.log: list[Request] = []
        self.faults: list[Fault] = []
        self.lock = threading.Lock()
        self.server = _Server(("127.0.0.1", 0), type("Bound", (_Handler,), {"hub": self}))
        self.port = self.server.server_address[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> FakeHub:
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def push(
        self, kind: str, name: str, files: dict[str, bytes], commit: str | None = None
    ) -> Repository:
        """Add a commit, the new `main`."""
        repository = self.repositories.setdefault((kind, name), Repository(name, kind))
        repository.commits[commit or commit_of(files)] = files
        return repository

    def asked(self, pattern: str = "", since: int = 0) -> list[Request]:
        """Return the logged requests, from number `since` on, that match `METHOD path`."""
        with self.lock:
            log = self.log[since:]
        return [request for request in log if re.search(pattern, f"{request[0]} {request[1]}")]

    def fetched(self, name: str, since: int = 0) -> set[str]:
        """Return `commit/file` of all files of a repository that were asked for and there."""
        found = self.asked(rf" /(datasets/)?{re.escape(name)}/resolve/", since)
        return {request.path.split("/resolve/")[1] for request in found if request.status < 400}

    def revisions(self, name: str, since: int = 0) -> set[str]:
        """Return all revisions of a repository that any request named; `main` where none did."""
        found = set()
        for request in self.asked(rf"/{re.escape(name)}(/|$)", since):
            rest = request.path.partition(name)[2].split("?")[0].split("/")
            found.add(rest[2] if len(rest) > 2 else "main")
        return found

    def fault_of(self, line: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times != 0 and re.search(fault.pattern, line):
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None

    def blob(self, digest: str) -> bytes | None:
        """Return the LFS file with this SHA-256."""
        for repository in list(self.repositories.values()):
            for files in repository.commits.values():
                for content in files.values():
                    if hashlib.sha256(content).hexdigest() == digest:
                        return content
        return None


def commit_of(files: dict[str, bytes]) -> str:
    """Return a commit's name that the files decide."""
    digest = hashlib.sha1()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + hashlib.sha1(files[name]).digest())
    return digest.hexdigest()


def blob_id(content: bytes) -> str:
    """Return git's name of a file."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of a client that went away, as one whose download is cut does."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, *args: object) -> None:
        pass

    # --- routes ----------------------------------------------------------------------------------

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.form = parse_qs(self.rfile.read(length).decode()) if length else {}
        url = urlsplit(self.path)
        self.query = parse_qs(url.query)
        fault = self.hub.fault_of(f"{self.command} {unquote(self.path)}")
        self.cut = fault is not None and fault.status is None
        if fault is not None and fault.status is not None:
            self._send(fault.status, b"no", fault.headers)
            return
        if digest := re.fullmatch(r"/cdn/(\w+)", url.path):
            content = self.hub.blob(digest[1])
            self._content(content, {}) if content is not None else self._send(404)
            return
        route = ROUTE.fullmatch(url.path)
        if route is None:
            self._send(404)
            return
        kind = route["api"] or ("datasets" if route["data"] else "models")
        repository = self.hub.repositories.get((kind, unquote(route["api_id"] or route["id"])))
        if repository is None:
            self._error(404, "RepoNotFound", "Repository not found")
            return
        revision = unquote(route["api_revision"] or route["revision"] or "main")
        commit = repository.commit(revision)
        if commit is None:
            self._error(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        elif route["file"]:
            self._resolve(repository, commit, unquote(route["file"]))
        elif route["what"] == "tree":
            self._tree(repository, commit, unquote(route["folder"] or ""))
        elif route["what"] == "paths-info":
            wanted = self.form["paths"]
            entries = _entries(repository.commits[commit], "", recursive=True)
            self._json([entry for entry in entries if entry["path"] in wanted])
        else:
            self._json(_info(repository, commit))

    def _resolve(self, repository: Repository, commit: str, name: str) -> None:
        headers = {"X-Repo-Commit": commit}
        content = repository.commits[commit].get(name)
        if repository.gated is not None:
            message = f"Access to {repository.id} is restricted."
            self._error(repository.gated, "GatedRepo", message)
        elif content is None:
            self._error(404, "EntryNotFound", "Entry not found", headers)
        elif name.endswith(LFS):
            digest = hashlib.sha256(content).hexdigest()
            headers |= {"X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{digest}"'}
            headers |= {"Location": f"http://localhost:{self.hub.port}/cdn/{digest}"}
            self._send(302, b"", headers)
        else:
            self._content(content, headers | {"ETag": f'"{blob_id(content)}"'})

    def _tree(self, repository: Repository, commit: str, folder: str) -> None:
        recursive = self.query.get("recursive", ["false"])[0].lower() == "true"
        entries = _entries(repository.commits[commit], folder, recursive)
        if folder and not entries:
            self._error(404, "EntryNotFound", f"{folder} does not exist on {commit}")
            return
        first = int(self.query.get("cursor", ["0"])[0])
        headers = {}
        if first + PAGE < len(entries):
            path = urlsplit(self.path).path
            rest = f"recursive={recursive}&expand=False&cursor={first + PAGE}"
            headers["Link"] = f'<{self.hub.endpoint}{path}?{rest}>; rel="next"'
        self._json(entries[first : first + PAGE], headers)

    # --- answers ---------------------------------------------------------------------------------

    def _content(self, content: bytes, headers: dict[str, str]) -> None:
        headers = {"Accept-Ranges": "bytes"} | headers
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if wanted is None:
            self._send(200, content, headers)
            return
        first, last = int(wanted[1]), int(wanted[2] or len(content) - 1)
        if first >= len(content):
            self._send(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            return
        last = min(last, len(content) - 1)
        place = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
        self._send(206, content[first : last + 1], headers | place)

    def _json(self, value: object, headers: dict[str, str] | None = None) -> None:
        kind = {"Content-Type": "application/json; charset=utf-8"}
        self._send(200, json.dumps(value).encode(), kind | (headers or {}))

    def _error(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        told = {"X-Error-Code": code, "X-Error-Message": message}
        self._send(status, message.encode(), told | (headers or {}))

    def _send(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        request = Request(self.command, unquote(self.path), self.headers.get("Range"), status)
        with self.hub.lock:
            self.hub.log.append(request)
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.cut:
            self.wfile.write(body[: len(body) // 2])
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.wfile.write(body)


def _entries(files: dict[str, bytes], folder: str, recursive: bool) -> list[dict[str, object]]:
    """List files and folders below a folder, in the Hub's words."""
    entries: dict[str, dict[str, object]] = {}
    below = f"{folder}/" if folder else ""
    for name, content in sorted(files.items()):
        if not name.startswith(below):
            continue
        *folders, _ = name[len(below) :].split("/")
        for depth in range(len(folders) if recursive else min(1, len(folders))):
            path = below + "/".join(folders[: depth + 1])
            oid = hashlib.sha1(path.encode()).hexdigest()
            entries[path] = {"type": "directory", "oid": oid, "size": 0, "path": path}
        if recursive or not folders:
            entries[name] = {"type": "file", "oid": blob_id(content), "path": name}
            entries[name]["size"] = len(content)
            if name.endswith(LFS):
                digest = hashlib.sha256(content).hexdigest()
                entries[name]["lfs"] = {"oid": digest, "size": len(content), "pointerSize": 134}
    return list(entries.values())


def _info(repository: Repository, commit: str) -> dict[str, object]:
    return {
        "_id": hashlib.md5(repository.id.encode()).hexdigest()[:24],
        "id": repository.id,
        "sha": commit,
        "private": False,
        "gated": "manual" if repository.gated else False,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": [],
        "lastModified": "2024-01-01T00:00:00.000Z",
        "createdAt": "2024-01-01T00:00:00.000Z",
        "siblings": [{"rfilename": name} for name in repository.commits[commit]],
    }
