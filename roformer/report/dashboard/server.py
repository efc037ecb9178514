"""Serves the dashboard to this machine alone: two paths, read only, made anew at every request.

A page of another site may make a browser ask 127.0.0.1, under a name of its own that it lets point there;
such a request names another host, and gets nothing.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ADDRESS = "127.0.0.1"
PORTS = 20
"""How many ports are tried, from the given one on."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class DashboardServer(ThreadingHTTPServer):
    """Answers `/` with the page and `/records.json` with its data, and nothing else.

    Args:
        port: the first to try; 0 takes any free one.
        page: makes the page.
        data: makes its data.

    Raises:
        OSError: no port from `port` on is free, or this one may not be had.
    """

    daemon_threads = True

    def __init__(self, port: int, page: Callable[[], str], data: Callable[[], str]) -> None:
        self.answers = {
            "/": ("text/html; charset=utf-8", page),
            "/records.json": ("application/json", data),
        }
        for candidate in range(port, min(port + PORTS, 2**16)):
            try:
                super().__init__((ADDRESS, candidate), Handler)
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise OSError(errno.EADDRINUSE, f"ports {port} to {candidate} are all in use")

    @property
    def address(self) -> str:
        """Where a browser finds it."""
        return f"http://{ADDRESS}:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """The names under which this server may be asked."""
        return {f"{name}:{self.server_port}" for name in (ADDRESS, "localhost")}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a browser that went away; any other error is a bug, and is told."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: DashboardServer
    server_version = "dashboard"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """Answer with the page or its data."""
        self._answer(body=True)

    def do_HEAD(self) -> None:
        """Answer with the headers that GET has."""
        self._answer(body=False)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: a live page asks every few seconds."""

    def _answer(self, *, body: bool) -> None:
        if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
            self._send(HTTPStatus.FORBIDDEN, "text/plain; charset=utf-8", "another host\n", body)
        elif (found := self.server.answers.get(self.path)) is None:
            self._send(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", "not here\n", body)
        else:
            kind, make = found
            self._send(HTTPStatus.OK, kind, make(), body)

    def _send(self, status: HTTPStatus, kind: str, text: str, body: bool) -> None:
        content = text.encode()
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)
