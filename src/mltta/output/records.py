"""What a record may contain when it is read back from a journal or a partition."""

from __future__ import annotations

from typing import Any

from mltta.storage.rules import either, flag, list_of, mapping, matches, number, optional, table, text, whole

#: characters of a name, of a thumbnail and of a heat map, and labels of a record: above what is written
_NAME, _PICTURE, _HEAT, _MOST = text(1 << 16), 4 << 20, 1 << 20, 1 << 17
_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
_NAMES = list_of(_NAME, _MOST)
_SCORES = list_of(table({"label": _NAME, "score": number(1, 0)}), _MOST)
_FAILED = table({"image": _NAME, "error": _NAME})
_TAGGED = table(
    {"image": _NAME, "present": _NAMES, "labels": _SCORES},
    {
        "note": optional(_NAME),
        "thumbnail": matches(_BASE64, _PICTURE),
        "where": mapping(_NAME, matches(_BASE64, _HEAT), _MOST),
    },
)
_SETTINGS = mapping(_NAME, lambda _: True, 1000)
_FORMAT = list_of(either(text(20), flag), 2, 2)
#: a file's size and time
is_stamp = optional(list_of(whole(1 << 80, -(1 << 80)), 2, 2))
_CRC = matches("[0-9a-f]{8}", 9)
#: the state of a written file
is_seal = table({"written": whole(1 << 62), "of": _CRC, "as": optional(_FORMAT), "file": _NAME})


def are_settings(held: Any) -> bool:
    """Whether these can be the settings of a run."""
    return _SETTINGS(held) and all(_NAMES(held.get(name, [])) for name in ("labels", "synonyms"))


def is_record(held: Any, labels: frozenset[str] | None) -> bool:
    """Whether this is the record of an image, with labels of the run if they are known."""
    if not _TAGGED(held):
        return _FAILED(held)
    own = {item["label"] for item in held["labels"]}
    return own.issuperset([*held["present"], *held.get("where", ())]) and (labels is None or labels >= own)
