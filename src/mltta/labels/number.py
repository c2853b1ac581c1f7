"""Singular and plural of English nouns, by rule."""

from __future__ import annotations

from functools import lru_cache


def _words(text: str) -> frozenset[str]:
    """Make a set of the words of a text."""
    return frozenset(text.split())


_IRREGULAR = dict(
    pair.split(":")
    for pair in _words(
        "children:child grandchildren:grandchild oxen:ox mice:mouse geese:goose teeth:tooth feet:foot "
        "knives:knife wives:wife lives:life wolves:wolf leaves:leaf loaves:loaf shelves:shelf scarves:scarf "
        "calves:calf halves:half elves:elf hooves:hoof thieves:thief dwarves:dwarf bookshelves:bookshelf "
        "axes:axe gases:gas lenses:lens irises:iris canvases:canvas atlases:atlas quizzes:quiz waltzes:waltz "
        "cacti:cactus tvs:tv cds:cd pcs:pc menus:menu emus:emu gnus:gnu gurus:guru tutus:tutu oases:oasis "
        "passersby:passerby moustaches:moustache mustaches:mustache avalanches:avalanche caribous:caribou "
        "headaches:headache quiches:quiche niches:niche caches:cache brioches:brioche"
    )
)
_UNCHANGED = _words(
    "scissors tennis iris ibis debris chassis axis pelvis canvas atlas lens gas christmas series species "
    "always perhaps this does chaos specimen abdomen regimen ramen omen semen stamen yemen"
)
_ENDS_IN_E = _words(
    "tie necktie bowtie pie magpie potpie cookie movie brownie smoothie hoodie selfie zombie genie calorie "
    "birdie collie prairie veggie goalie rookie foodie cutie sweetie hippie caddie auntie budgie pixie "
    "shoe horseshoe snowshoe toe tiptoe canoe hoe foe oboe aloe doe floe"
)


@lru_cache(maxsize=65536)
def singular(word: str) -> str:
    """Return the singular of a lower-case English word; what looks singular already is returned as it is."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith("men") and word not in _UNCHANGED:
        return word[:-2] + "an"
    if len(word) <= 3 or word[-1] != "s" or word in _UNCHANGED or word.endswith(("ss", "us", "sis", "itis")):
        return word
    if word[:-1] in _ENDS_IN_E:
        return word[:-1]
    if word.endswith("ies"):
        return word[:-3] + "y"
    if word.endswith(("oes", "sses", "xes", "zzes", "ches", "shes")):
        return word[:-2]
    if word.endswith(("buses", "tuses", "puses", "ruses")):  # buses, cactuses, octopuses, walruses
        return word[:-2]
    return word[:-1]
