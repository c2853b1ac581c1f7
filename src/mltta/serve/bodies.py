"""Limits on the parts of a JSON body, checked before a parser allocates memory for them."""

from __future__ import annotations

from mltta.serve.offer import Limits

#: bytes counted at once; another thread may run after each piece
_PIECE, _QUOTE, _BACKSLASH = 1 << 20, b'"', ord("\\")


def room_of(limits: Limits) -> tuple[int, int]:
    """The parts and the bytes of text of the largest `/v1/tag` request within the limits.

    An image has at most 10 parts and 3,000 characters, a label 2 parts; a character is escaped by up to 6 bytes.
    """
    text = 6 * (limits.labels * limits.label_length + 3000 * limits.images)
    return 1000 + 16 * limits.images + 4 * limits.labels, text


def fits(body: bytes, parts: int, text: int) -> bool:
    """Whether JSON has at most so many parts, and so many bytes of text outside the field "data".

    Parts are strings, commas, opening brackets and escaped quotes.
    """
    if _count(body, _QUOTE, 0, len(body), 2 * parts) > 2 * parts:
        return False
    at, last = 0, b""
    while True:
        start = body.find(_QUOTE, at)
        end = len(body) if start < 0 else start
        for mark in (b",", b"[", b"{"):
            parts -= _count(body, mark, at, end, parts)
        named_data = last == b"data" and body.find(b":", at, end) >= 0
        at = start + 1
        while start >= 0:
            close = body.find(_QUOTE, at)
            parts -= 1
            if close < 0:
                return True  # the parser reports it
            first = close
            while first > at and body[first - 1] == _BACKSLASH and close - first <= text:
                first -= 1
            text -= close - (first if named_data else at)
            at = close + 1
            if min(parts, text) < 0:
                return False
            if (close - first) % 2 == 0:
                last = body[start + 1 : close] if close - start == 5 else b""
                break
        if parts < 0 or start < 0:
            return parts >= 0


def _count(body: bytes, mark: bytes, start: int, end: int, most: int) -> int:
    """How often a byte occurs; stops beyond the given number."""
    found = 0
    while start < end and found <= most:
        found += body.count(mark, start, min(end, start + _PIECE))
        start += _PIECE
    return found
