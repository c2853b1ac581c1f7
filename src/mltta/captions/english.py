"""Word lists of everyday English that tell where a word of a caption names a thing and where it does not."""

from __future__ import annotations

# Phrases in which the starred word does not name what it names alone; alternatives stand between slashes.
# Kinds of a thing (dining table, polar bear) and phrases that imply it (clock tower) have no place here.
SWALLOWED = """
hot/prairie *dog
*hot *dog cart/stand
*dog food/house/park/tag
*sheep dog/skin
*cow bell/boy/girl/hide
german *shepherd
*mouse pad/trap
*cat fish/food/nap/walk
*bird bath/feeder/house/seed/watcher
*bird watching session/tour/trip
*bird s eye
teddy/toy/gummy/stuffed/koala *bear
*sea *lion/*horse
sea *bed
rocking *horse
*horse chestnut/power/radish/shoe
*guinea *pig
*tiger lily
snow/gingerbread *man
*baby bear/bird/carrot/cow/elephant/giraffe/goat/horse/sheep/zebra
*couple of
screw *driver
cd/dvd/media/music/record/video *player
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
*apple cider/juice/pie/sauce/tree
*banana/*orange peel/tree
*bicycle/*bike/*book/*cake/*donut/*pizza/*sandwich parlor/place/ramp/restaurant/shop/stand/store/truck
*orange juice/soda
*carrot/*banana cake/bread
*toilet paper/roll
microwave *oven
toilet/super *bowl
cable/train/rail *car
*railway crossing
*bus/*train/*railway line/platform/route/schedule/station/stop/ticket
*train track
*jet *ski
*jet lag
*skateboard/*snowboard/*ski hill/lift/lodge/park/resort/slope/trail
life *cycle
*table cloth/lamp/salt/tennis/spoon
flower/river/sofa/truck *bed
*bed room/sheet/side
pitch/tuning *fork
*sink hole
*bicycle/*bike helmet/lane/path
*phone booth/number
sleeping/bean/tea/punching *bag
crystal/disco/meat *ball
*ball gown/room
*baseball/*tennis/*soccer/*football/*basketball cap/coach/court/fan/field/game/jersey/match/outfit
*baseball/*tennis/*soccer/*football/*basketball player/shoe/stadium/team/uniform
play/played/playing *baseball/*tennis/*soccer/*football/*basketball
*family car/home/room
*family dining table
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

# Kinds of a thing that are no kind of the label it is a synonym of: a coffee table is a table, but no dining table.
OTHER_KINDS = """
bedside/billiards/changing/coffee/console/operating/pool *table
"""


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
