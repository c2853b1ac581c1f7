"""Everyday words for ImageNet-1k classes: coarse word -> class indices (timm's class order).

The probability of a word is the sum over its classes, from the frozen ImageNet classifier. A class may belong to
several words (a tabby is a cat and an animal).
"""

from __future__ import annotations

# One entry per word. Ranges are inclusive.
_FISH = "0-6,389-397"
_BIRD = "7-24,80-100,127-146"
_REPTILE = "33-50"
_SNAKE = "52-68"
_INSECT = "300-326"
_SPIDER = "72-77"
_SHELLFISH = "118-125"
_DOG = "151-268,273-275"
_CAT = "281-285"
_BIG_CAT = "286-293"
_BEAR = "294-297,388"
_RABBIT = "330-332"
_COW = "345-347"
_SHEEP = "348-349"
_PIG = "341-343"
_MONKEY = "365-384"
_ELEPHANT = "101,385-386"
_HOOFED = "339-355"
_MAMMAL = "101-106,147-150,269-299,330-388"
_CAR = "407,436,468,511,573,609,627,656,661,717,751,817"
_TRUCK = "555,569,675,717,864,867"
_BUS = "654,779,874"
_TRAIN = "466,547,565,705,820,829"
_BICYCLE = "444,671"
_MOTORBIKE = "665,670"
_BOAT = "403,472,484,510,554,576,625,628,724,780,814,833,871,914"
_SHIP = "403,510,554,628,724,780,913"
_AEROPLANE = "404,895"
_CHAIR = "423,559,765,857"
_SOFA = "831"
_TABLE = "532,736,526"
_SCREEN = "527,664,782,851,598"
_PHONE = "487,528,707"
_BOTTLE = "440,720,737,898,907"
_CLOCK = "409,530,892,826,835"
_FRUIT = "948-957"
_VEGETABLE = "936-947,987"
_DISH = "924-935,959-965"
_FLOWER = "984-986"
_MUSHROOM = "947,991-997"
_BUILDING = (
    "415,424-425,449,467,483,497-498,500,509,538,580,582,624,634,660,663,668,698,727,743,762,788,832,860,865"
)
_HAT = "439,452,515,667,808,793,433"
_HELMET = "518,560,715"
_SHOE = "502,514,630,770,774"
_GUITAR = "402,546"
_PIANO = "579,881"
_BALL = "429-430,522,574,722,768,805,852,890"
_GUN = "413,763-764,471"
_COAT = "568,617,869,474"
_BAG = "414,636,728,748,797"
_INSTRUMENT = (
    "401-402,420,432,486,513,541,546,558,566,577,579,593-594,641-642,683-684,687,699,776,822,875,881,889"
)
_MOUNTAIN = "970,980,979"
_WHEELED = f"{_CAR},{_TRUCK},{_BUS},866,847,586,595,561,575,757,803"

# fmt: off
COARSE: dict[str, str] = {
    # animals
    "animal": f"0-397,{_DOG}", "fish": _FISH, "shark": "2-4", "goldfish": "1", "bird": _BIRD, "birds": _BIRD,
    "wild bird": "10-24,80-100,127-146", "chicken": "7-8", "parrot": "87-90", "eagle": "21-23", "owl": "24",
    "duck": "97-98", "goose": "99", "swan": "100", "penguin": "145", "ostrich": "9", "peacock": "84",
    "flamingo": "130", "pelican": "144", "frog": "30-32", "lizard": "38-48", "turtle": "33-37",
    "tortoise": "33-37", "crocodile": "49-50", "reptile": f"{_REPTILE},{_SNAKE}", "snake": _SNAKE,
    "spider": _SPIDER, "insect": _INSECT, "beetle": "300-307", "bee": "309", "butterfly": "321-326",
    "dragonfly": "319-320", "crab": "118-121,125", "lobster": "122-124", "jellyfish": "107",
    "starfish": "327", "coral": "109,973", "snail": "113-115", "whales": "147-148", "whale": "147-148",
    "seal": "149-150", "dog": _DOG, "wolf": "269-272", "fox": "277-280", "cat": _CAT, "lion": "291",
    "tiger": "292", "leopard": "288-290,293", "bear": _BEAR, "polar bear": "296", "panda": "387-388",
    "rabbit": _RABBIT, "squirrel": "335", "mammal": f"{_MAMMAL},{_DOG}", "horse": "339", "horses": "339",
    "zebra": "340", "pig": _PIG, "hippopotamus": "344", "cow": _COW, "cattle": _COW, "bull": _COW,
    "sheep": _SHEEP, "goat": "350", "antelope": "351-353", "deer": "351-353", "camel": "354",
    "llama": "355", "monkey": _MONKEY, "gorilla": "366", "elephant": _ELEPHANT, "kangaroo": "104",
    "koala": "105",
    # transport
    "vehicle": f"{_WHEELED},{_MOTORBIKE},802,829", "car": _CAR, "cars": _CAR, "race car": "751",
    "sports car": "511,817,751", "taxi": "468", "jeep": "609", "van": "656,675,734", "ambulance": "407",
    "truck": _TRUCK, "pickup truck": "717", "fire truck": "555", "tractor": "866", "bus": _BUS,
    "train": _TRAIN, "tram": "829", "bicycle": _BICYCLE, "bike": f"{_BICYCLE},{_MOTORBIKE}",
    "tricycle": "870", "motorbike": _MOTORBIKE, "motorcycle": _MOTORBIKE, "scooter": _MOTORBIKE,
    "boat": _BOAT, "boats": _BOAT, "ship": _SHIP, "sailboat": "484,780,871,914", "canoe": "472",
    "submarine": "833", "aeroplane": _AEROPLANE, "airplane": _AEROPLANE, "plane": _AEROPLANE,
    "hotair balloon": "417", "balloon": "417", "carriage": "603,690,612", "rickshaw": "612",
    "trolley": "791", "stroller": "431", "wheel": "479,694,723", "parachute": "701",
    # furniture, home and electronics
    "furniture": f"{_CHAIR},{_SOFA},{_TABLE},453,493,495,516,520,548,564,703,894", "chair": _CHAIR,
    "sofa": _SOFA, "couch": _SOFA, "bench": "703", "table": _TABLE, "dining table": "532", "desk": "526",
    "bed": "564,520,516,750", "pillow": "721", "cabinet": "493,495,648,894", "lamp": "619,846,818",
    "candle": "470", "curtain": "794,854,905", "carpet": "741,539", "mirror": "475",
    "window": "904-905,789", "door": "799", "bathtub": "435,876", "toilet": "861", "sink": "896",
    "towel": "434,533,700", "tv": _SCREEN, "television": _SCREEN, "tv monitor": _SCREEN,
    "monitor": _SCREEN, "screen": _SCREEN, "computer": "527,590,620,681", "laptop": "620,681",
    "keyboard": "508,878,810", "mouse": "673", "remote": "761", "printer": "742,713", "phone": _PHONE,
    "telephone": _PHONE, "cell phone": "487", "cellphone": "487", "camera": "732,759", "radio": "754,848",
    "speaker": "632", "microphone": "650", "fan": "545", "clock": _CLOCK, "watch": "531,826",
    "refrigerator": "760", "oven": "827,651,544", "microwave": "651", "toaster": "859",
    "washing machine": "897", "iron": "606", "hair dryer": "589", "hair drier": "589", "book": "917,921",
    "bookcase": "453", "umbrella": "879", "vase": "883", "potted plant": "738", "plants pot": "738",
    "pot": "738,505,849", "broom": "462", "bucket": "463", "basket": "588,790", "barrel": "427,756",
    "box": "478,519,492,709", "trash bin": "412", "teddy bear": "850", "stuffed animal": "850",
    "toy": "850,865",
    # kitchen and food
    "bottle": _BOTTLE, "wine glass": "572,966", "glass": "441,572,966", "cup": "504,968,967,647",
    "mug": "504,968", "bowl": "659,809", "plate": "923", "spoon": "910,618", "knife": "499,623",
    "tea pot": "849", "kettle": "849,505", "food": f"{_DISH},{_FRUIT},936-947,987", "fruit": _FRUIT,
    "vegetable": _VEGETABLE, "bread": "930-932", "cake": "927", "pizza": "963", "hot dog": "934",
    "hamburger": "933", "sandwich": "933", "ice cream": "928-929", "pasta": "959", "apple": "948",
    "orange": "950", "lemon": "951", "banana": "954", "strawberry": "949", "pine apple": "953",
    "pineapple": "953", "pomegranate": "957", "broccoli": "937", "cabbage": "936", "cucumber": "943",
    "pepper": "945", "corn": "987,998", "mushroom": _MUSHROOM, "coffee": "967,504,505,550", "wine": "966,907",
    # clothing and things carried
    "hat": _HAT, "helmet": _HELMET, "shoe": _SHOE, "shoes": _SHOE, "boots": "514", "sandals": "774",
    "sneakers": "770", "sock": "806,496", "glove": "658", "glasses": "836-837", "sunglasses": "836-837",
    "tie": "906,451", "bow tie": "457", "necklace": "679", "dress": "578,601,689,614", "skirt": "655,601,689",
    "coat": _COAT, "jacket": _COAT, "jeans": "608", "suit": "834", "swimsuit": "445,638-639,842",
    "bikini": "445", "sweatshirt": "841", "jersey": "610", "uniform": "652", "mask": "643,570,796,691",
    "wig": "903", "bag": _BAG, "backpack": "414", "handbag": "748", "purse": "748,893", "clothing": (
        f"{_COAT},399-400,411,443,445,459,501,529,578,601,608,610,614,638-639,652,655,689,697,735,775,834,841-842,887"
    ),
    # sport, music, tools
    "ball": _BALL, "baseball": "429", "basketball": "430", "soccer": "805", "tennis ball": "852",
    "golf ball": "574", "volleyball": "890", "tennis racket": "752", "racket": "752", "skis": "795",
    "sled": "450,537", "barbell": "422", "dumbbell": "543", "swing": "843", "guitar": _GUITAR,
    "piano": _PIANO, "drum": "541", "violin": "889", "cello": "486", "flute": "558", "trumpet": "513",
    "trombone": "875", "saxophone": "776", "french horn": "566", "accordion": "401",
    "musical instrument": _INSTRUMENT, "hammer": "587", "screwdriver": "784", "shovel": "792",
    "electric drill": "740", "chainsaw": "491", "tool": "477,491,499,587,596,726,740,784,792,730",
    "gun": _GUN, "scale": "778", "tripod": "872", "pen": "418,563", "binoculars": "447", "flag": "557",
    # places and nature
    "building": _BUILDING, "buildings": _BUILDING, "house": "660,425,449,448", "castle": "483",
    "church": "497", "temple": "832,663,668", "tower": "900,437,442", "bridge": "821,839,888",
    "fence": "489,716,912", "wall": "825", "fountain": "562", "street sign": "919", "sign": "919",
    "traffic sign": "919", "traffic light": "920", "parking meter": "704", "stage": "819",
    "store": "415,424,454,467,509,582,788,860,865", "tent": "672", "dock": "536,718", "mountain": _MOUNTAIN,
    "valley": "979", "cliff": "972", "volcano": "980", "beach": "976-978", "ocean": "973,976-978,460",
    "sea": "973,976-978,460", "lake": "975", "flower": _FLOWER, "flowers": _FLOWER, "playground": "843",
    "crane": "517", "statue": "863,649", "bubble": "971",
    # the few classes that show people
    "person": "981-983", "human": "981-983",
}
# fmt: on


def indices(spec: str) -> list[int]:
    """Class indices of a specification such as '1,4-6'."""
    found: set[int] = set()
    for part in spec.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return sorted(found)


def coarse_indices() -> dict[str, list[int]]:
    """Every coarse word with its ImageNet-1k class indices."""
    return {word: indices(spec) for word, spec in COARSE.items()}


# ImageNet shows only some kinds of these things, so a low probability does not imply absence.
_PARTIAL = """
person human building buildings wall window door table clothing shoe shoes hat jacket coat glasses sign dress
skirt flower flowers food toy bag box fence house wheel glass tool store flag mountain sea ocean watch boots
glove tie uniform suit jeans necklace tower statue stage curtain carpet furniture
"""
PARTIAL = frozenset(_PARTIAL.split()) | {"traffic sign"}

# Photos of these classes rarely show a person: animals, dishes, plants, landscapes, furniture and household items
# (empty rooms), buildings.
_WITHOUT_PEOPLE = (
    "1-388,924-970,972,974-975,979-980,984-999",
    "409,412,435,440-441,453,463,470,493,495,504-505,508,526-527,532,534,548,550,553,559,564,598,619,648,651,659",
    "664,673,681,720-721,737-738,742,760-761,782,799,804,809,827,831,846,849,851,857,859,861,876,883,886,892,894",
    "896-899,904-905,907,909,919-920,923",
    "425,437,442,449,483,497,663,668,698,821,832,839,888",
)
WITHOUT_PEOPLE = frozenset(indices(",".join(_WITHOUT_PEOPLE)))
