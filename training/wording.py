"""Other wordings of a label: templates, articles, plurals, colours, numbers.

"the cat", "cats" or "a red car" should score about like "cat" and "car". The text tower's target for such a wording
therefore moves from its own meaning towards the plain label's.
"""

from __future__ import annotations

import random
from typing import NamedTuple

PLAIN = "a photo of a {}."
# open_clip's seven "simple" templates; a label's feature for local views is their mean
SIMPLE = (
    "itap of a {}.", "a bad photo of the {}.", "a origami {}.", "a photo of the large {}.",
    "a {} in a video game.", "art of the {}.", "a photo of the small {}.",
)  # fmt: skip
SAME, NEAR = 0.8, 0.5  # how far a wording's target moves towards the plain label
COLOURS = ("red", "blue", "green", "yellow", "white", "black", "brown", "grey", "orange", "pink")
QUALITIES = ("big", "small", "old", "new", "young", "wooden", "broken", "beautiful", "wet", "striped")
NUMBERS = ("two", "three", "four", "five", "several", "many", "2", "3")
_IRREGULAR = {
    "man": "men", "woman": "women", "child": "children", "person": "persons", "mouse": "mice", "goose": "geese",
    "foot": "feet", "tooth": "teeth", "leaf": "leaves", "knife": "knives", "scarf": "scarves", "wolf": "wolves",
    "shelf": "shelves", "calf": "calves", "sheep": "sheep", "fish": "fish", "deer": "deer", "aircraft": "aircraft",
}  # fmt: skip


class Wording(NamedTuple):
    """A text, the plain text it moves towards, and how far."""

    text: str
    plain: str
    share: float


def plural(noun: str) -> str:
    """The plural of an English noun by rule; nouns that end in s are unchanged.

    >>> [plural(n) for n in ("dog", "wine glass", "puppy", "policewoman", "sheep", "jeans")]
    ['dogs', 'wine glasses', 'puppies', 'policewomen', 'sheep', 'jeans']
    """
    head, _, last = noun.rpartition(" ")
    for singular, many in _IRREGULAR.items():
        if last.endswith(singular) and (last == singular or singular in ("man", "woman")):
            last = last.removesuffix(singular) + many
            break
    else:
        if last.endswith(("ss", "x", "ch", "sh")):
            last += "es"
        elif last.endswith("y") and last[-2:-1] not in "aeiou":
            last = last[:-1] + "ies"
        elif not last.endswith("s"):
            last += "s"
    return f"{head} {last}".strip()


def wordings(noun: str, rng: random.Random) -> list[Wording]:
    """Templates, and other wordings of a noun, alone and inside a template."""
    plain = PLAIN.format(noun)
    found = [Wording(t.format(noun), plain, NEAR) for t in SIMPLE]
    many = plural(noun)
    same = [f"the {noun}", many, f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"]
    near = [
        f"{rng.choice(COLOURS)} {noun}",
        f"{rng.choice(NUMBERS)} {many}",
        f"{rng.choice(QUALITIES)} {noun}",
    ]
    near += [f"a {near[0]}", f"the {near[2]}"]
    for forms, share in ((same, SAME), (near, NEAR)):
        for form in dict.fromkeys(forms):
            if form != noun:
                found += [Wording(form, plain, share), Wording(PLAIN.format(form), plain, share)]
    return found
