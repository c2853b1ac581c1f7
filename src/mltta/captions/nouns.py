"""Which labels a sentence names: whole words, singular or plural, longest phrase first."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache

from mltta.labels import LabelSet

# Phrases in which the starred word does not name what it names alone; alternatives stand between slashes.
# Kinds of a thing (dining table, polar bear) and phrases that imply it (clock tower) have no place here.
_SWALLOWED = """
hot/prairie *dog
*dog food/house/park/tag
*cat fish/food
*bird bath/feeder/house/seed
*bird s eye
teddy/toy/gummy/stuffed/koala *bear
*sea *lion/*horse
sea *bed
rocking *horse
*horse chestnut/power/radish/shoe
*guinea *pig
*tiger lily
snow/gingerbread *man
power/egg *plant
*house boat/cat/fly/plant
light *house
sand/bouncy *castle
*fire alarm/department/engine/escape/extinguisher/fighter/helmet/hydrant/station/truck/work
*rock band/concert/music/star
*sun dress/flower/glass/hat/screen
*star fish
*water color/melon
*ice cream
pine *apple
*apple cider/juice/pie/sauce
*orange juice/soda
*carrot/*banana cake/bread
*toilet paper
toilet/super *bowl
cable/train/rail *car
*bus/*train/*railway stop/station
*train track
*jet *ski
*jet lag
*skateboard/*snowboard/*ski park/resort/slope/lift
life *cycle
*table tennis/spoon
flower/river/truck *bed
sleeping/bean/tea/punching *bag
crystal/disco/meat *ball
*ball gown/room
*baseball/*tennis/*soccer/*football/*basketball cap/court/field/jersey/outfit/shoe/stadium/uniform
*family car/home/room
*passenger seat
world *cup
*sports car
o *clock
*tie dye/dyed
*monitor lizard
head/ear *phone
*bench press
milky/half *way
*orange cloud/flower/hue/leaf/light/pillow
*remote area/beach/field/forest/hill/island/location/mountain/place/village
"""


def _words(text: str) -> frozenset[str]:
    """Make a set of the words of a text."""
    return frozenset(text.split())


# These name a thing only before the end of a phrase, a verb, or a word like these (an orange on a plate);
# otherwise they describe what follows (an orange cat, a remote beach).
_ADJECTIVES = frozenset({"orange", "remote"})
_AFTER_NOUN = _words(
    "about across against along among and around as at atop behind beside between but by close control for "
    "from fruit grove has in inside into is lay near nearby next of on onto or orchard over peel sat seen side "
    "slice that the through to together tree under was which while will with"
)

# A bus stop is a place, but "the bus stops" is a bus.
_VERB_FORMS = _words("fields flies lifts lights parks presses stars stops works")

# "her ring" is no herring: two words are read as one only where the first could begin a noun.
_FUNCTION_WORDS = _words(
    "all and any are but can for has her his its nor not off one our out she the was who you"
)

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

_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
# Vowel signs and accents belong to their word, though \w leaves them out.
_MARKS = "".join(chr(c) for c in range(0x300, 0xAC00) if unicodedata.category(chr(c)) in ("Mn", "Mc"))
# A word, or one character of a script without spaces, or a mark that no phrase reaches across.
_TOKEN = re.compile(rf"[{_CJK}]|(?:[^\W_{_CJK}]|[{_MARKS}])+|[,;:!?()]")


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


class NounFilter:
    """Finds the labels of one label set in sentences.

    >>> NounFilter(LabelSet.of("dog, cat"))("Two cats watch a dog eat a hot dog.")
    [1, 0]
    """

    def __init__(self, labels: LabelSet) -> None:
        own: dict[tuple[str, ...], dict[int, None]] = {}
        other: dict[tuple[str, ...], dict[int, None]] = {}
        for i, (name, text, synonyms) in enumerate(
            zip(labels.names, labels.texts, labels.synonyms, strict=True)
        ):
            for table, texts in ((own, (name, text)), (other, synonyms)):
                for phrase in itertools.chain.from_iterable(map(_phrases, texts)):
                    table.setdefault(phrase, {})[i] = None
        # A label's own name goes before another label's synonym. Value: words consumed, labels named.
        self._table = {phrase: (len(phrase), tuple(named)) for phrase, named in (other | own).items()}
        self._add_swallowing_phrases()
        lengths: dict[str, set[int]] = {}
        for phrase in self._table:
            lengths.setdefault(phrase[0], set()).add(len(phrase))
        self._lengths = {word: sorted(sizes, reverse=True) for word, sizes in lengths.items()}

    def __call__(self, sentence: str, duplicates: bool = False) -> list[int]:
        """Return the labels a sentence names, in order of first mention; or every mention with duplicates."""
        tokens = _tokens(sentence)
        words = [singular(token) for token in tokens]
        found: list[int] = []
        i = 0
        while i < len(words):
            consumed, named = self._match(tokens, words, i)
            if named and consumed == 1 and tokens[i] in _ADJECTIVES and self._describes(tokens, words, i):
                named = ()
            found.extend(named)
            i += consumed
        return found if duplicates else list(dict.fromkeys(found))

    def _match(self, tokens: list[str], words: list[str], i: int) -> tuple[int, tuple[int, ...]]:
        """Return how many words the longest phrase at position i takes up, and the labels it names."""
        if i >= len(words):
            return 1, ()
        sizes = self._lengths.get(words[i], ())
        for size in sizes:
            if 1 < size <= len(words) - i and (hit := self._table.get(tuple(words[i : i + size]))):
                if hit[0] < size and tokens[i + size - 1] in _VERB_FORMS:
                    continue
                return hit
        if i + 1 < len(words) and len(tokens[i]) > 2 and len(tokens[i + 1]) > 2:
            joined = singular(tokens[i] + tokens[i + 1])  # air plane, snow boards
            if joined in self._lengths and (joined,) in self._table and tokens[i] not in _FUNCTION_WORDS:
                return 2, self._table[(joined,)][1]
        return self._table.get((words[i],), (1, ()))

    def _describes(self, tokens: list[str], words: list[str], i: int) -> bool:
        """Tell whether the word at position i is the adjective of what follows."""
        if i + 1 == len(tokens):
            return False
        after = tokens[i + 1]
        names_thing = after in _AFTER_NOUN or not after.isalnum() or after.endswith(("s", "ing", "ed"))
        return not names_thing or bool(self._match(tokens, words, i + 1)[1])

    def _add_swallowing_phrases(self) -> None:
        """Enter the phrases of _SWALLOWED, except those that the label set names itself."""
        extra: dict[tuple[str, ...], tuple[int, tuple[int, ...]]] = {}
        for line in _SWALLOWED.split("\n")[1:-1]:
            for parts in itertools.product(*(alternatives.split("/") for alternatives in line.split())):
                phrase = tuple(singular(part.lstrip("*")) for part in parts)
                if phrase in self._table or (singular("".join(phrase)),) in self._table:
                    continue
                # Words after the last star are left to be matched as usual: fire | truck.
                consumed = max(i for i, part in enumerate(parts, start=1) if part[0] == "*")
                visible = [(w,) for w, part in zip(phrase[:consumed], parts, strict=False) if part[0] != "*"]
                named = [label for word in visible for label in self._table.get(word, (1, ()))[1]]
                extra[phrase] = (consumed, tuple(named))
        self._table.update(extra)


def label_matches(texts: Iterable[str], labels: LabelSet, duplicates: bool = False) -> list[list[int]]:
    """Return for each text the labels it names."""
    nouns = NounFilter(labels)
    return [nouns(text, duplicates) for text in texts]


def _tokens(text: str) -> list[str]:
    """Split text into case-folded words; hyphens, apostrophes and underscores separate words."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    return _TOKEN.findall(text.casefold())


def _phrases(text: str) -> Iterator[tuple[str, ...]]:
    """Give the forms under which a label may stand in a sentence: word by word, and written as one."""
    words = [token for token in _tokens(text) if token not in ",;:!?()"]
    if words:
        yield tuple(map(singular, words))
    if len(words) > 1:
        yield (singular("".join(words)),)
