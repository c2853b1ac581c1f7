"""Word lists of everyday English that tell where a word of a caption names a thing and where it does not."""

from __future__ import annotations

from pathlib import Path

_PHRASES = (Path(__file__).parents[1] / "assets" / "captions" / "swallowed.txt").read_text(encoding="utf-8")
#: by the label that must not be there (or ""), phrases whose starred words do not name what they name alone
SWALLOWED = [
    line.rpartition(": ")[::2] for line in _PHRASES.splitlines() if line and not line.startswith("#")
]


def _words(text: str) -> frozenset[str]:
    """Make a set of the words of a text."""
    return frozenset(text.split())


# These name a thing only before the end of a phrase, a verb, or a word like these (an orange on a plate);
# otherwise they describe what follows (an orange cat, a remote beach).
ADJECTIVES = frozenset({"orange", "remote"})
AFTER_NOUN = _words(
    "about across against along among and around as at atop behind beside between but by close control for "
    "from fruit has in inside into is lay near nearby next of on onto or orchard over peel sat seen side "
    "slice that the through to together tree under was which while will with"
)

# A bus stop is a place, but "the bus stops" is a bus.
VERB_FORMS = _words(
    "fields flies lifts lights lines matches naps parks presses stands stars stops tickets walks works"
)

# These are verbs as well: where they take an object (ties his shoe) or follow one of BEFORE_VERB (to cook),
# unless it belongs to a place (next to bears).
VERBS = _words("bear book bottle cook host ski sink tie train")
OBJECTS = _words("a an her his its my our the their them this your")
BEFORE_VERB = _words("to can could may might must shall should will would")
BEFORE_TO = _words("adjacent close near next")

# "her ring" is no herring: two words are read as one only where the first could begin a noun.
FUNCTION_WORDS = _words(
    "all and any are but can for has her his its nor not off one our out she the was who you"
)

# Sports whose gear is called by its last word alone where the sport is spoken of: a baseball player swings a bat.
SPORTS = _words("baseball golf hockey tennis")
# In a list of labels that has one of these, "mouse" is a device, so a mouse that eats or is chased is none.
COMPUTERS = ("computer", "keyboard", "laptop")
ANIMAL_AFTER = tuple(
    _words(
        "ate chas climb crawl danc eat enjoy explor feed find found gnaw hid hop hungry jump look munch nap nibbl "
        "peek play ran run scamper scurr sleep sniff squeak swim walk wander watch"
    )
)
ANIMAL_BEFORE = tuple(_words("catch caught chas curious cute frighten furry hungry playful scared"))
