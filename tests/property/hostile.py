"""Helpers for tests of hostile files: ways to damage a file, and the law for its readers."""

import copy
import json

from hypothesis import settings
from hypothesis import strategies as st

from roformer.errors import InputError

DEEP = [b"[" * 100_000, b'{"a":' * 100_000]
NASTY = [
    *(b"\0", b"\r", b"\n", b"\n\n", b"\t", b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\x1b[31m"),
    *(b'"', b"{", b"}", b"[", b",", b'"\\ud800"', b"\\u0000", b"NaN", b"-Infinity", b"1e999"),
    *(b"null", b"9" * 400, b"9" * 5000, b"x" * 100_000, b"../", b"PK\x03\x04", b"\x80\x04.", *DEEP),
]
"""Pieces that parsers have stumbled over: ends, marks, numbers, depth, length, other formats."""
LEAVES = [
    *(None, True, 0, -1, 1, 10**15, 2**63, 10**400, 0.5, float("nan"), float("inf")),
    *("", "x", "1", "\0", "\n", "\ud800", "../../outside", "/etc/hostname", "a/b", ".."),
    *([], [[]], {}, {"": None}),
]


def fuzz(examples):
    """Return the settings of a test that may call its reader this often."""
    return settings(max_examples=examples, deadline=None, derandomize=True)


@st.composite
def mangled(draw, content):
    """Draw bytes: arbitrary ones, or the content with one to three places damaged."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.integers(0, len(content))) for _ in range(2))
        kind = draw(st.sampled_from(["insert", "insert", "flip", "remove", "cut", "repeat"]))
        if kind == "insert":
            content = content[:start] + draw(st.sampled_from(NASTY)) + content[start:]
        elif kind == "flip" and start < len(content):
            changed = content[start] ^ (1 << draw(st.integers(0, 7)))
            content = content[:start] + bytes([changed]) + content[start + 1 :]
        elif kind == "remove":
            content = content[:start] + content[min(end, start + 20) :]
        elif kind == "cut":
            content = content[:end]
        elif kind == "repeat":
            content = content[:end] + content[start:]
    return content


@st.composite
def mangled_json(draw, document):
    """Draw JSON whose form is right: one to three of its values replaced or keys removed."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        if not (places := list(_places(document))):
            break
        inside, key = draw(st.sampled_from(places))
        if isinstance(inside, dict) and draw(st.integers(0, 3)) == 0:
            del inside[key]
        else:
            inside[key] = copy.deepcopy(draw(st.sampled_from(LEAVES)))
    if draw(st.integers(0, 19)) == 0:
        document = draw(st.sampled_from(LEAVES))
    return json.dumps(document).encode()


def _places(document):
    items = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in list(items):
        yield document, key
        if isinstance(value, dict | list):
            yield from _places(value)


def read_or_refused(read, *names, error=InputError):
    """Return what `read` returns, or None where it raised a one-line error.

    The line of the `error` can be printed and names one of `names`.
    """
    try:
        return read()
    except error as refusal:
        message = str(refusal)
        assert message.isprintable() and len(message) < 2100, message
        assert any(str(name) in message for name in names), message
        return None
