"""A Hugging Face Hub on this machine: repositories in memory, served as its clients ask.

The routes, headers and error codes are those that `huggingface_hub` and `datasets` read; a client is
sent here by HF_ENDPOINT. Every request is logged, and faults can be ordered.
"""

import hashlib
import json
import re
import socket
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

ROUTE = re.compile(
    r"/(?:api/)?(?:(?:models|datasets)/)?(?P<id>[^/]+/[^/]+)"
    r"(?:/(?P<what>revision|tree|paths-info|resolve)/(?P<revision>[^/]+)/?(?P<path>.*))?"
)


class Request(NamedTuple):
    """A client's request, without the query."""

    line: str
    """Method and path."""
    status: int


@dataclass
class Fault:
    """The answer that replaces the real one for requests whose line the pattern matches."""

    pattern: str
    status: int | None = None
    """An error's; None cuts the connection in the middle of the body."""
    times: int | None = None
    """Number of times; None: always."""


class FakeHub(ThreadingHTTPServer):
    """The server, its repositories and its log."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self.repositories = {}
        """Name → commit → file → content; the last commit is `main`."""
        self.gated = {}
        """Name → error status for its files: 401 without a token, 403 with one."""
        self.faults, self.log = [], []
        self.lock = threading.Lock()

    def handle_error(self, request, client_address):
        """Say nothing of a client that went away, as one whose download is cut does."""

    def push(self, name, files, commit=None):
        """Add a commit, the new `main`."""
        commit = commit or digest(*(name.encode() + files[name] for name in sorted(files)))
        self.repositories.setdefault(name, {})[commit] = files

    def asked(self, pattern="", since=0):
        """Return the logged requests, from number `since` on, whose line matches."""
        return [request for request in self.log[since:] if re.search(pattern, request.line)]

    def fetched(self, name, since=0):
        """Return `commit/file` of all files of a repository that were asked for and there."""
        found = self.asked(f"/{name}/resolve/", since)
        return {one.line.split("/resolve/")[1] for one in found if one.status < 400}

    def revisions(self, name, since=0):
        """Return all revisions of a repository that any request named; `main` where none did."""
        asked = [
            one.line.partition(name)[2].split("/") for one in self.asked(f"/{name}(/|$)", since)
        ]
        return {rest[2] if len(rest) > 2 else "main" for rest in asked}

    def fault_of(self, line):
        with self.lock:
            for fault in self.faults:
                if fault.times != 0 and re.search(fault.pattern, line):
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None


@contextmanager
def fake_hub():
    with FakeHub() as hub:
        threading.Thread(target=hub.serve_forever, args=(0.02,), daemon=True).start()
        yield hub
        hub.shutdown()


def digest(*parts):
    return hashlib.sha1(b"\0".join(parts)).hexdigest()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        url, hub = urlsplit(self.path), self.server
        path = unquote(url.path)
        self.line = f"{self.command} {path}"
        self.fault = hub.fault_of(self.line)
        route = ROUTE.fullmatch(path)
        commits = hub.repositories.get(route["id"]) if route else None
        if self.fault and self.fault.status:
            return self.send(self.fault.status, b"no")
        if commits is None:
            return self.refuse(404, "RepoNotFound", "Repository not found")
        name, revision, below = route["id"], route["revision"] or "main", route["path"]
        commit = next(reversed(commits)) if revision == "main" else revision
        if commit not in commits:
            return self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        files = commits[commit]
        if route["what"] == "resolve":
            return self.send_file(name, commit, files.get(below))
        if route["what"] == "paths-info":
            wanted = parse_qs(body)["paths"]
            return self.send_json([one for one in entries(files) if one["path"] in wanted])
        if route["what"] == "tree":
            found = [
                one for one in entries(files) if one["path"].startswith(f"{below}/" * bool(below))
            ]
            if parse_qs(url.query).get("recursive", [""])[0].lower() != "true":
                found = [one for one in found if "/" not in one["path"][len(below) :].strip("/")]
            if below and not found:
                return self.refuse(404, "EntryNotFound", f"{below} does not exist on {commit}")
            return self.send_json(found)
        dates = dict.fromkeys(("lastModified", "createdAt"), "2024-01-01T00:00:00.000Z")
        counts = {"downloads": 0, "likes": 0, "private": False, "disabled": False, "tags": []}
        siblings = [{"rfilename": file} for file in files]
        return self.send_json({"id": name, "sha": commit, "siblings": siblings} | dates | counts)

    do_HEAD = do_POST = do_GET

    def send_file(self, name, commit, content):
        if name in self.server.gated:
            return self.refuse(self.server.gated[name], "GatedRepo", f"{name} is restricted.")
        if content is None:
            return self.refuse(404, "EntryNotFound", "Entry not found", {"X-Repo-Commit": commit})
        headers = {
            "X-Repo-Commit": commit,
            "ETag": f'"{digest(content)}"',
            "Accept-Ranges": "bytes",
        }
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if part is None:
            return self.send(200, content, headers)
        first, last = int(part[1]), min(int(part[2] or len(content)), len(content) - 1)
        place = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
        return self.send(206, content[first : last + 1], headers | place)

    def send_json(self, value):
        self.send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def refuse(self, status, code, message, headers=None):
        told = {"X-Error-Code": code, "X-Error-Message": message}
        self.send(status, message.encode(), told | (headers or {}))

    def send(self, status, body=b"", headers=None):
        self.server.log.append(Request(self.line, status))
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.fault and self.fault.status is None:
            self.wfile.write(body[: len(body) // 2])
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.wfile.write(body)

    def log_message(self, *_):
        """Print nothing."""


def entries(files):
    """List the files and folders of a commit in the Hub's words."""
    folders = {str(above) for name in files for above in PurePosixPath(name).parents} - {"."}
    found = [
        {"type": "directory", "oid": digest(n.encode()), "size": 0, "path": n} for n in folders
    ]
    for name, content in files.items():
        one = {"type": "file", "oid": digest(content), "size": len(content), "path": name}
        found.append(one)
    return sorted(found, key=lambda one: one["path"])
