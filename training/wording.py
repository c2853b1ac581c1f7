"""The same label in other words: templates, articles, plurals, colours, numbers.

Somebody who asks for "the cat", "cats" or "a red car" should get about the answer of "cat" and "car". So the text
tower's goal for such a wording leans from its own meaning towards the plain label's.
"""

from __future__ import annotations

import random
from typing import NamedTuple

PLAIN = "a photo of a {}."
# open_clip's seven "simple" templates, of which a label's feature is the mean where local views are read
SIMPLE = (
    "itap of a {}.", "a bad photo of the {}.", "a origami {}.", "a photo of the large {}.",
    "a {} in a video game.", "art of the {}.", "a photo of the small {}.",
)  # fmt: skip
SAME, NEAR = 0.8, 0.5  # how far a wording's goal lies on the way to the plain label
COLOURS = ("red", "blue", "green", "yellow", "white", "black", "brown", "grey", "orange", "pink")
QUALITIES = ("big", "small", "old", "new", "young", "wooden", "broken", "beautiful", "wet", "striped")
NUMBERS = ("two", "three", "four", "five", "several", "many", "2", "3")
_IRREGULAR = {
    "man": "men", "woman": "women", "child": "children", "person": "persons", "mouse": "mice", "goose": "geese",
    "foot": "feet", "tooth": "teeth", "leaf": "leaves", "knife": "knives", "scarf": "scarves", "wolf": "wolves",
    "shelf": "shelves", "calf": "calves", "sheep": "sheep", "fish": "fish", "deer": "deer", "aircraft": "aircraft",
}  # fmt: skip


class Wording(NamedTuple):
    """A text, the plain text it leans on, and how far."""

    text: str
    plain: str
    share: float


def plural(noun: str) -> str:
    """The plural of an English noun by rule; one that ends in s is left as it is.

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
    """Templates, and some other ways to ask for a noun, alone and inside a template."""
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
