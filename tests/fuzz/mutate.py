"""Ways to spoil a file: bytes anywhere, the values of JSON, text that parsers choke on."""

from __future__ import annotations

import json
import random
from typing import Any

DEEP = "[" * 100_000
DIGITS = "9" * 5000
#: stand in for any value of JSON; some are not valid JSON themselves, and go in as they are
RAW = (DEEP, DIGITS, "NaN", "Infinity", "-1", "1e400", '"' + "x" * 200_000 + '"', "{}", "[]", "null", "true")
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1 << 40,
    1.5,
    "",
    "x",
    "../..",
    "/dev/zero",
    [],
    {},
    [[]],
    {"a": {}},
)


def bytes_of(data: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat, insert, or swap some bytes."""
    spoiled = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        if not spoiled:
            break
        at, size = rng.randrange(len(spoiled)), rng.choice((1, 2, 4, 16, 256))
        how = rng.randrange(7)
        if how == 0:
            spoiled[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            spoiled[at : at + size] = rng.randbytes(size)
        elif how == 2:
            del spoiled[at : at + size]
        elif how == 3:
            del spoiled[at:]
        elif how == 4:
            spoiled[at:at] = bytes(spoiled[at : at + size]) * rng.choice((1, 2, 50))
        elif how == 5:
            spoiled[at : at + 4] = rng.choice((b"\0" * 4, b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\0\0\1"))
        else:
            spoiled[at : at + size] = bytes(size)
    return bytes(spoiled)


def json_of(held: Any, rng: random.Random) -> bytes:
    """Exchange, drop or add a value somewhere, or write one that is not JSON at all."""
    held = json.loads(json.dumps(held))
    places = list(_places(held))
    marked = None
    for _ in range(rng.choice((1, 1, 2, 4))):
        owner, key = rng.choice(places) if places else (None, None)
        if owner is None:
            break
        how = rng.randrange(4)
        try:
            if how == 0:
                del owner[key]
            elif how == 1:
                owner[key] = rng.choice(VALUES)
            elif how == 2 and isinstance(owner, dict):
                owner[rng.choice(("", "x", "__class__", str(key) + "x"))] = owner[key]
            else:
                marked, owner[key] = rng.choice(RAW), "@@RAW@@"
        except (KeyError, IndexError):
            pass
    text = json.dumps(held)
    return (text if marked is None else text.replace('"@@RAW@@"', marked, 1)).encode()


def text_of(data: bytes, rng: random.Random) -> bytes:
    """Lines that parsers choke on, put into a text."""
    odd = (
        DEEP,
        DIGITS,
        "x" * 200_000,
        '"' + "y" * 200_000,
        "\0",
        "\ufeff",
        "a,b,c,,,,",
        "{",
        '{"a": ' + DEEP,
        "\r",
        "é" * 100,
        "😀",
        "|",
        "- - - -",
        "&a [*a, *a]",
        "!!python/object/apply:os.mkdir [MARKER]",
    )
    lines = data.decode(errors="replace").split("\n")
    for _ in range(rng.choice((1, 2, 5))):
        at = rng.randrange(len(lines) + 1)
        lines[at:at] = [rng.choice(odd)] if rng.random() < 0.7 else lines[at : at + 1] * 3
    return "\n".join(lines).encode(errors="surrogateescape")


def _places(held: Any) -> list[tuple[Any, Any]]:
    found = []
    if isinstance(held, dict):
        items: Any = list(held.items())
    elif isinstance(held, list):
        items = list(enumerate(held[:20]))
    else:
        return []
    for key, value in items:
        found.append((held, key))
        found += _places(value)
    return found
