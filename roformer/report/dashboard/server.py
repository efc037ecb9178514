"""Serve the dashboard to this machine only: two read-only paths, made again for every request.

Another site's page may make a browser request 127.0.0.1 under a host name that it controls. Such a request
names another host and is rejected.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ADDRESS = "127.0.0.1"
PORTS = 20
"""Number of ports to try, starting with the given one."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class DashboardServer(ThreadingHTTPServer):
    """Answers `/` with the page and `/records.json` with its data, on the first free port from `port` on.

    Raises:
        OSError: no port is free, or the given one is not allowed.
    """

    daemon_threads = True

    def __init__(self, port: int, page: Callable[[], str], data: Callable[[], str]) -> None:
        self.answers = {
            "/": ("text/html; charset=utf-8", page),
            "/records.json": ("application/json", data),
        }
        last = min(port + PORTS, 2**16) - 1
        for candidate in range(port, last + 1):
            try:
                super().__init__((ADDRESS, candidate), Handler)
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or candidate == last:
                    raise
        self.address = f"http://{ADDRESS}:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a closed connection; any other error is a bug and is printed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: DashboardServer
    timeout = 30

    def do_GET(self) -> None:
        """Answer with the page or its data."""
        hosts = [[f"{name}:{self.server.server_port}"] for name in (ADDRESS, "localhost")]
        status, (kind, make) = 404, ("text/plain", lambda: "not here\n")
        if self.headers.get_all("Host", []) not in hosts:
            status, make = 403, lambda: "another host\n"
        elif self.path in self.server.answers:
            status, (kind, make) = 200, self.server.answers[self.path]
        content = make().encode()
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing: a live page asks every few seconds."""
