"""On the path of the tests' processes: no network but this machine's, and a note of each attempt."""

import os
import socket

LOCAL = {"localhost", "127.0.0.1", "::1", None, ""}
_getaddrinfo = socket.getaddrinfo


def getaddrinfo(host, *rest, **options):
    name = host.decode() if isinstance(host, bytes) else host
    if name in LOCAL:
        return _getaddrinfo(host, *rest, **options)
    with open(os.environ["ESCAPES"], "a") as notes:
        notes.write(f"{name}\n")
    raise socket.gaierror(socket.EAI_NONAME, f"{name} is not this machine")


socket.getaddrinfo = getaddrinfo
