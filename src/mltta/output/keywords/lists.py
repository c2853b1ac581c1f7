"""What each list of keywords in a photo contains: flat keywords, and paths such as animal|dog.

Programs read the first list that they know and ignore the others. So a list that is new in a photo also gets the
keywords that the photo has in another list, and every program shows the same.
"""

from __future__ import annotations

from collections.abc import Sequence

#: what separates the levels of a keyword, as in Lightroom
LEVEL = "|"
#: lists in the order in which they say most about a keyword
PLACES = ("tags", "hierarchy", "subject", "iptc")
Lists = dict[str, list[str]]
EMPTY: Lists = {place: [] for place in PLACES}


def spread(keywords: Sequence[str]) -> Lists:
    """Return what each list says about some keywords.

    >>> spread(["animal|dog", "a/c"])["subject"], spread(["animal|dog", "a/c"])["tags"]
    (['animal', 'dog', 'a/c'], ['animal/dog', 'a|c'])
    """
    flat = list(dict.fromkeys(word for keyword in keywords for word in keyword.split(LEVEL)))
    tags = [keyword.translate(_SWAPPED) for keyword in keywords]
    return {"tags": tags, "hierarchy": list(keywords), "subject": flat, "iptc": flat}


def paths(there: Lists) -> list[str]:
    """Return the keywords of a photo from the first list that has any.

    >>> paths({"tags": [], "hierarchy": ["animal|dog"], "subject": ["animal", "dog"], "iptc": []})
    ['animal|dog']
    """
    found = next((place for place in PLACES if there[place]), "subject")
    held = [word.strip() for word in there[found]]
    return [word.translate(_SWAPPED) for word in held] if found == "tags" else held


def additions(there: Lists, keywords: Sequence[str], beneath: Lists) -> tuple[Lists, Lists]:
    """Return what to add to each list, and which of it is ours; ``beneath`` are keywords that a new list would hide.

    >>> there = {"tags": [], "hierarchy": [], "subject": ["home", "cat"], "iptc": []}
    >>> new, ours = additions(there, ["dog", "Home"], EMPTY)
    >>> new["subject"], new["tags"], ours["tags"]
    (['dog'], ['home', 'cat', 'dog'], ['dog'])
    """
    wanted, before = spread(keywords), spread(paths(there) or paths(beneath))
    new: Lists = {}
    ours: Lists = {}
    for place in PLACES:
        taken = {word.strip().casefold() for word in there[place] or before[place]}
        ours[place] = [word for word in wanted[place] if word.casefold() not in taken]
        new[place] = ([] if there[place] else before[place]) + ours[place]
    return new, ours


#: digiKam separates levels by a slash, which may be part of a name elsewhere
_SWAPPED = str.maketrans("|/", "/|")
