"""Word lists for `nouns.py`: frequent objects in everyday captions, and implications between words."""

from __future__ import annotations

CAPTION_NOUNS = """
man woman boy girl child kid baby toddler infant teenager adult lady guy people person crowd family couple
player team athlete runner rider biker cyclist skateboarder snowboarder skier surfer swimmer climber hiker
dancer singer musician guitarist performer bride groom officer policeman soldier worker driver fisherman
cowboy clown cheerleader referee goalie catcher batter wrestler boxer photographer spectator audience
mother father friend student
dog puppy cat kitten horse pony cow bull sheep goat bird duck pigeon seagull fish monkey tiger bear animal
greyhound poodle retriever terrier collie husky bulldog
ball football baseball basketball soccer ball tennis ball volleyball rugby hockey golf cricket frisbee bat
racket puck goal net hoop trampoline ramp skateboard snowboard surfboard ski sled wakeboard kayak canoe raft
paddle oar rollerblades skates scooter bike bicycle motorcycle motorbike tricycle unicycle car truck bus van
jeep train subway boat ship sailboat rowboat airplane plane helicopter tractor wagon cart carriage stroller
wheelchair wheel tire
water grass snow sand mud dirt ice rock stone mountain hill cliff beach ocean sea lake river stream creek
pond pool puddle waterfall wave shore field lawn meadow forest woods tree bush leaf branch log flower plant
garden park yard playground path trail road street sidewalk highway parking lot bridge tunnel dock pier
desert valley sky cloud sun sunset rainbow moon rain fog fire smoke fireworks
city town building house church barn castle store shop market restaurant cafe bar school stadium arena court
track rink gym stage office kitchen bathroom bedroom living room hallway porch patio balcony roof wall fence
gate door window stairs staircase ladder railing ledge platform bench chair couch sofa table desk bed
blanket pillow rug carpet mat towel curtain lamp mirror television computer laptop screen phone cellphone
camera microphone speaker headphones guitar drum piano violin trumpet saxophone musical instrument book
newspaper magazine paper poster sign billboard banner flag graffiti painting picture statue sculpture
fountain balloon kite umbrella tent rope chain leash collar harness muzzle stick pole bucket box basket bag
backpack purse suitcase luggage bottle cup mug glass plate bowl fork knife spoon food fruit vegetable cake
pizza sandwich hamburger hot dog ice cream bread candy coffee beer wine soda drink meal picnic toy doll
teddy bear stuffed animal swing slide sprinkler hose bubble candle cigarette gun sword tool shovel broom
hammer hurdle obstacle
shirt t-shirt sweater sweatshirt hoodie jacket coat vest suit tie dress skirt shorts pants jeans uniform
jersey costume robe apron swimsuit bikini wetsuit pajamas hat cap helmet beanie headband bandanna scarf
glove boots shoe sneakers sandals sock sunglasses glasses goggles mask necklace tattoo beard wig crown
face hair hand
parade race game wedding party concert carnival festival roller coaster ferris wheel parachute skyline
nighttime crosswalk bus stop traffic light street light train station bicycle race motorcycle race
race car dirt bike pickup truck fire truck police car life jacket baseball bat baseball player
soccer player football player tennis player tennis court basketball court swimming pool picnic table
shopping cart cowboy hat football helmet rock wall climbing wall palm tree christmas tree wine glass
cell phone coffee cup potted plant dining table
"""

# Two-word nouns of the list above, which can therefore be written as plain text.
PHRASES = """
soccer ball|tennis ball|parking lot|living room|musical instrument|hot dog|ice cream|teddy bear
stuffed animal|roller coaster|ferris wheel|bus stop|traffic light|street light|train station|bicycle race
motorcycle race|race car|dirt bike|pickup truck|fire truck|police car|life jacket|baseball bat
baseball player|soccer player|football player|tennis player|tennis court|basketball court|swimming pool
picnic table|shopping cart|cowboy hat|football helmet|rock wall|climbing wall|palm tree|christmas tree
wine glass|cell phone|coffee cup|potted plant|dining table
"""

# Words that captions use in another sense than the noun (verbs, colours, teams); never matched on their own.
_AMBIGUOUS = """
orange brush cutting iron key target watch watches ring saw scale seal slide fan fans cue dates pepper surf
running dancing swing sports picture military bat crane park drink hand face goal net track race game bar
cricket boxer ski kite horn tape converter canned clutch life marker folder vent toiletries bow pick file
hook fly jay robin drake quill safe stole suit switch hip ear cock rule screw spotlight reel wing mortar
projectile slot torch racer plane cap tie lighter iron wreck tank kiwi chow black swab pole jean
camera head spot jack press site drop light mini nail chest shades coach bath spike carrier hopper centipede
board rubber puff vault spiral beam nipple tub boa teddy pickup pitcher velvet tabby hummingbird bra denim
whistle pirate chest cot
"""
AMBIGUOUS = frozenset(_AMBIGUOUS.split())

# Ambiguous words that are nouns often enough in captions to be kept.
_KEPT = """
ring slide swing surf running dancing sports bat face hand goal net track race game bar drink suit kite ski
plane cap tie pole tank park
"""
KEPT = frozenset(_KEPT.split())

_PEOPLE = """
man woman boy girl child kid baby toddler infant teenager adult lady guy people crowd family couple player
team athlete runner rider biker cyclist bicyclist motorcyclist skateboarder snowboarder skier surfer swimmer
climber hiker dancer singer musician guitarist performer bride groom officer policeman soldier worker driver
fisherman cowboy clown cheerleader referee goalie catcher batter wrestler photographer spectator audience
mother father friend student someone gentleman male female human jogger pedestrian racer pitcher coach
teammate opponent daughter son brother sister mom dad kayaker skater rollerblader bridesmaid vendor pirate
baseball_player soccer_player football_player tennis_player swimmers onlooker individual jockey customer
artist businessman tourist teen youth fan
"""

# word -> words that are then also true. Synonyms are listed in both directions.
IMPLIES: dict[str, tuple[str, ...]] = {
    **{word.replace("_", " "): ("person", "human") for word in _PEOPLE.split()},
    "person": ("human",),
    "human": ("person",),
    "people": ("person", "human"),
    "puppy": ("dog", "animal"),
    "dog": ("animal",),
    "kitten": ("cat", "animal"),
    "cat": ("animal",),
    **dict.fromkeys(
        (
            "greyhound",
            "poodle",
            "retriever",
            "terrier",
            "collie",
            "husky",
            "bulldog",
            "doberman",
            "labrador",
            "pitbull",
            "hound",
            "beagle",
            "dalmatian",
            "rottweiler",
            "german shepherd",
            "dachshund",
            "corgi",
        ),
        ("dog", "animal"),
    ),
    "horse": ("animal", "horses"),
    "horses": ("animal", "horse"),
    "pony": ("horse", "animal", "horses"),
    "cow": ("animal", "cattle"),
    "cattle": ("cow", "animal"),
    "bull": ("animal", "cow"),
    "calf": ("cow", "animal"),
    "ox": ("cow", "animal"),
    "sheep": ("animal",),
    "lamb": ("sheep", "animal"),
    "goat": ("animal",),
    "pig": ("animal",),
    "bird": ("animal", "birds"),
    "birds": ("animal", "bird"),
    **dict.fromkeys(
        (
            "duck",
            "pigeon",
            "seagull",
            "goose",
            "swan",
            "eagle",
            "parrot",
            "penguin",
            "chicken",
            "crow",
            "gull",
            "flamingo",
            "pelican",
        ),
        ("bird", "birds", "animal"),
    ),
    **dict.fromkeys(
        (
            "monkey",
            "tiger",
            "lion",
            "bear",
            "elephant",
            "zebra",
            "giraffe",
            "fox",
            "deer",
            "rabbit",
            "camel",
            "dolphin",
            "seal",
            "shark",
            "fish",
            "squirrel",
            "llama",
        ),
        ("animal",),
    ),
    "bike": ("bicycle", "vehicle"),
    "bicycle": ("bike",),
    "bmx": ("bicycle", "bike"),
    "biker": ("person", "human"),
    "motorbike": ("motorcycle", "vehicle"),
    "motorcycle": ("motorbike", "vehicle"),
    "dirt bike": ("motorbike", "motorcycle", "vehicle"),
    "motocross": ("motorbike", "motorcycle", "vehicle"),
    "moped": ("motorbike", "motorcycle", "vehicle"),
    "car": ("vehicle", "cars"),
    "cars": ("vehicle", "car"),
    "jeep": ("car", "cars", "vehicle"),
    "suv": ("car", "cars", "vehicle"),
    "taxi": ("car", "cars", "vehicle"),
    "cab": ("car", "cars", "vehicle"),
    "race car": ("car", "cars", "vehicle"),
    "police car": ("car", "cars", "vehicle", "police"),
    "sports car": ("car", "cars", "vehicle"),
    "van": ("vehicle",),
    "truck": ("vehicle",),
    "pickup truck": ("truck", "vehicle"),
    "fire truck": ("truck", "vehicle"),
    "bus": ("vehicle",),
    "train": ("vehicle",),
    "subway": ("train",),
    "tractor": ("vehicle",),
    "atv": ("vehicle",),
    "boat": ("boats",),
    "boats": ("boat",),
    "sailboat": ("boat", "boats"),
    "rowboat": ("boat", "boats"),
    "kayak": ("boat", "boats"),
    "canoe": ("boat", "boats"),
    "ship": ("boat", "boats"),
    "raft": ("boat", "boats"),
    "yacht": ("boat", "boats", "ship"),
    "speedboat": ("boat", "boats"),
    "airplane": ("aeroplane", "plane"),
    "aeroplane": ("airplane", "plane"),
    "plane": ("aeroplane", "airplane"),
    "jet": ("aeroplane", "airplane", "plane"),
    "sofa": ("couch",),
    "couch": ("sofa",),
    "tv": ("television", "tv monitor", "monitor", "screen"),
    "television": ("tv", "tv monitor", "monitor", "screen"),
    "tv monitor": ("tv", "television", "monitor"),
    "computer monitor": ("tv monitor", "monitor", "screen"),
    "laptop": ("computer",),
    "phone": ("telephone",),
    "telephone": ("phone",),
    "cellphone": ("cell phone", "phone", "telephone"),
    "cell phone": ("cellphone", "phone", "telephone"),
    "mobile phone": ("cell phone", "cellphone", "phone"),
    "dining table": ("table",),
    "picnic table": ("table",),
    "coffee table": ("table",),
    "potted plant": ("plant", "plants", "plants pot"),
    "plants pot": ("potted plant", "plant", "plants"),
    "flower pot": ("potted plant", "plants pot", "plant", "plants"),
    "flowerpot": ("potted plant", "plants pot"),
    "plant": ("plants",),
    "plants": ("plant",),
    "flower": ("flowers",),
    "flowers": ("flower",),
    "soccer ball": ("ball", "sports ball"),
    "tennis ball": ("ball", "sports ball"),
    "football": ("sports ball",),
    "basketball": ("ball", "sports ball"),
    "volleyball": ("ball", "sports ball"),
    "baseball": ("sports ball",),
    "golf ball": ("ball", "sports ball"),
    "beach ball": ("ball",),
    "american football": ("football",),
    "soccer": ("sports",),
    "hockey": ("sports",),
    "rugby": ("sports",),
    "tennis": ("sports",),
    "racquet": ("racket", "tennis racket"),
    "tennis racket": ("racket",),
    "tennis racquet": ("racket", "tennis racket"),
    "ski": ("skis",),
    "skis": ("ski",),
    "snowboard": (),
    "kite": (),
    "surfboard": (),
    "ocean": ("water", "sea"),
    "sea": ("water", "ocean"),
    "lake": ("water",),
    "river": ("water",),
    "pool": ("water", "swimming pool"),
    "swimming pool": ("water", "pool"),
    "pond": ("water",),
    "stream": ("water",),
    "creek": ("water",),
    "waterfall": ("water",),
    "wave": ("water",),
    "grass": (),
    "lawn": ("grass",),
    "mountains": ("mountain",),
    "woods": ("forest", "tree"),
    "forest": ("tree",),
    "palm tree": ("tree",),
    "christmas tree": ("tree",),
    "clouds": ("sky", "cloud"),
    "cloud": ("sky", "clouds"),
    "rock": ("rocks", "stone"),
    "rocks": ("rock", "stone"),
    "boulder": ("rock", "rocks"),
    "stone": ("rock", "rocks"),
    "building": ("buildings",),
    "buildings": ("building",),
    "house": ("building", "buildings"),
    "church": ("building", "buildings"),
    "barn": ("building", "buildings"),
    "skyscraper": ("building", "buildings"),
    "shop": ("store",),
    "store": ("shop",),
    "stairs": ("staircase",),
    "staircase": ("stairs",),
    "step": ("stairs",),
    "cap": ("hat",),
    "beanie": ("hat",),
    "cowboy hat": ("hat",),
    "football helmet": ("helmet",),
    "shoe": ("shoes",),
    "shoes": ("shoe",),
    "sneakers": ("shoe", "shoes"),
    "boots": ("shoe", "shoes"),
    "sandals": ("shoe", "shoes"),
    "sunglasses": ("glasses",),
    "goggles": (),
    "purse": ("handbag", "bag"),
    "handbag": ("purse", "bag"),
    "backpack": ("bag",),
    "suitcase": ("luggage", "bag"),
    "luggage": ("suitcase",),
    "t-shirt": ("shirt",),
    "jacket": ("coat",),
    "coat": ("jacket",),
    "hoodie": ("sweatshirt",),
    "bikini": ("swimsuit",),
    "bathing suit": ("swimsuit",),
    "swim trunks": ("swimsuit",),
    "guitar": ("musical instrument",),
    "drum": ("musical instrument",),
    "violin": ("musical instrument",),
    "trumpet": ("musical instrument",),
    "saxophone": ("musical instrument",),
    "piano": ("musical instrument",),
    "accordion": ("musical instrument",),
    "instrument": ("musical instrument",),
    "pizza": ("food",),
    "cake": ("food",),
    "sandwich": ("food",),
    "hot dog": ("food",),
    "hamburger": ("food",),
    "fruit": ("food",),
    "vegetable": ("food",),
    "bread": ("food",),
    "ice cream": ("food",),
    "meal": ("food",),
    "apple": ("fruit", "food"),
    "banana": ("fruit", "food"),
    "watermelon": ("fruit", "food"),
    "teddy bear": ("stuffed animal", "toy"),
    "stuffed animal": ("toy",),
    "doll": ("toy",),
    "road": ("street",),
    "street": ("road",),
    "highway": ("road", "street"),
    "flag": ("flags",),
    "flags": ("flag",),
    "sign": (),
    "stop sign": ("sign", "traffic sign"),
    "street sign": ("sign", "traffic sign"),
    "police": ("person", "human"),
    "policeman": ("police", "person", "human"),
    "cup": ("mug",),
    "mug": ("cup",),
    "bottle": (),
    "wine glass": ("glass",),
    "glass": (),
    "sunset": ("sky", "sun"),
    "sun": ("sky",),
}

# word -> words that may be true but need not be: neither positive nor negative.
MAYBE: dict[str, tuple[str, ...]] = {
    **{word.replace("_", " "): ("people",) for word in _PEOPLE.split()},
    "bird": ("wild bird",),
    "birds": ("wild bird",),
    "table": ("dining table", "coffee table", "desk"),
    "plant": ("potted plant", "plants pot"),
    "pot": ("potted plant", "plants pot"),
    "screen": ("tv", "television", "tv monitor", "monitor"),
    "computer": ("laptop", "tv monitor", "monitor", "keyboard", "screen"),
    "bike": ("motorbike", "motorcycle"),
    "biker": ("bicycle", "bike", "motorbike", "motorcycle"),
    "rider": ("bicycle", "bike", "motorbike", "horse", "motorcycle", "horses"),
    "cyclist": ("bicycle", "bike"),
    "motorcyclist": ("motorbike", "motorcycle"),
    "beer": ("bottle", "glass", "cup"),
    "drink": ("bottle", "glass", "cup", "wine glass"),
    "drinking": ("bottle", "glass", "cup"),
    "restaurant": ("dining table", "table", "chair", "food", "cup", "bottle", "plate"),
    "kitchen": ("dining table", "table", "oven", "sink", "refrigerator", "bottle", "cup", "bowl"),
    "living room": ("sofa", "couch", "chair", "tv", "television", "tv monitor"),
    "cafe": ("chair", "table"),
    "office": ("desk", "chair", "computer", "tv monitor", "monitor"),
    "seat": ("chair", "sofa", "couch", "bench"),
    "sitting": ("chair", "sofa", "couch", "bench"),
    "street": ("car", "cars", "vehicle", "truck", "bus"),
    "traffic": ("car", "cars", "vehicle", "truck", "bus"),
    "road": ("car", "cars", "vehicle"),
    "city": ("car", "cars", "vehicle", "building", "buildings", "bus"),
    "vehicle": ("car", "cars", "truck", "bus"),
    "parking lot": ("car", "cars", "vehicle"),
    "harbor": ("boat", "boats", "ship"),
    "dock": ("boat", "boats"),
    "horseback": ("horse", "horses", "animal"),
    "rodeo": ("horse", "horses", "bull", "cow"),
    "jockey": ("horse", "horses"),
    "farm": ("cow", "sheep", "horse"),
    "garden": ("plant", "plants", "flower"),
    "skateboarder": ("skateboard",),
    "snowboarder": ("snowboard",),
    "skier": ("ski", "skis"),
    "surfer": ("surfboard",),
    "skateboarding": ("skateboard",),
    "snowboarding": ("snowboard",),
    "skiing": ("ski", "skis"),
    "surfing": ("surfboard",),
    "kayaking": ("kayak", "boat", "boats"),
}

# A table in a caption with one of these words is a dining table.
_EATING = """
eat eating eats dinner lunch breakfast meal food restaurant plate dish dining cake pizza drink drinking wine
"""
EATING = frozenset(_EATING.split())

# Words for people and for dogs: an image without any of them in its captions shows none.
# ("fan" more often means the device.)
PEOPLE = frozenset({"people", "person", *(w for w, implied in IMPLIES.items() if "person" in implied)}) - {
    "fan"
}
DOGS = frozenset({"dog", *(w for w, implied in IMPLIES.items() if "dog" in implied)})

# Things that are in many photos but in few captions: their absence from captions says little.
_PASSED_OVER = """
chair|cup|mug|bottle|glass|wine glass|plate|bowl|fork|knife|spoon|napkin|book|tie|bow tie|table|dining table
coffee table|desk|lamp|clock|watch|potted plant|plants pot|vase|pot|pillow|curtain|window|door|wall|cabinet|shelf
mirror|picture|painting|poster|sign|street sign|traffic sign|street light|traffic light|car|cars|vehicle|truck|bag
handbag|purse|backpack|phone|telephone|cell phone|cellphone|remote|mouse|keyboard|monitor|screen|tv|television
tv monitor|box|basket|bucket|hat|cap|glasses|sunglasses|necklace|belt|shoe|shoes|sneakers|boots|sandals|sock|jeans
pants|shorts|shirt|t-shirt|jacket|hair|face|hand|fence|pole|railing|tree|bush|leaf|plant|plants|flower|flowers
grass|sky|cloud|clouds|rock|rocks|stone|building|buildings|house|road|street|sidewalk|bench|couch|sofa|towel
blanket|rug|carpet|sink|trash bin|candle|furniture|clothing|ring|umbrella|flag|flags|microphone|speaker|stairs
"""
PASSED_OVER = frozenset(w.strip() for line in _PASSED_OVER.split("\n") for w in line.split("|") if w.strip())
