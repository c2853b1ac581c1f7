"""Claims about which labels a sentence names."""

from __future__ import annotations

import pytest

from mltta.captions.nouns import NounFilter, label_matches, singular
from mltta.labels import LabelSet

COCO = LabelSet.load("coco")
coco_filter = NounFilter(COCO)


def named(labels: object, sentence: str) -> list[str]:
    """Return the names found in a sentence."""
    label_set = LabelSet.of(labels)  # type: ignore[arg-type]
    return [label_set.names[i] for i in NounFilter(label_set)(sentence)]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        (
            "A hot dog toaster is positioned next to a stop sign.",
            ["hot dog", "toaster", "stop sign"],
        ),
        (
            "A group of girls enjoying a game of frisbee while sitting on chairs.",
            ["person", "frisbee", "chair"],
        ),
        (
            "The little boy dreams of becoming a pilot as he falls asleep with his aeroplane.",
            ["person", "airplane"],
        ),
        (
            "Remotes control the TV, allowing people to enjoy their favorite shows.",
            ["remote", "tv", "person"],
        ),
        (
            "A motorbike speeds past a man wearing a tie, as he holds a wine glass in one hand.",
            ["motorcycle", "person", "tie", "wine glass"],
        ),
    ],
)
def test_examples_of_the_paper(sentence: str, expected: list[str]) -> None:
    assert [COCO.names[i] for i in coco_filter(sentence)] == expected


PLURALS = """
men man women woman policemen policeman children child mice mouse geese goose teeth tooth feet foot
knives knife wolves wolf leaves leaf loaves loaf shelves shelf scarves scarf calves calf halves half oxen ox
buses bus glasses glass vases vase horses horse houses house ties tie cookies cookie movies movie ponies pony
tomatoes tomato shoes shoe benches bench sandwiches sandwich skis ski gloves glove boxes box purses purse
pizzas pizza tvs tv taxis taxi octopuses octopus puppies puppy
"""


def test_singular_of_plurals() -> None:
    words = PLURALS.split()
    assert [singular(word) for word in words[::2]] == words[1::2]


def test_words_that_are_singular_or_only_look_plural_stay() -> None:
    odd = ["scissors", "tennis", "grass", "dress", "people", "sheep", "specimen", "gas"]
    stay = PLURALS.split()[1::2] + odd
    assert [singular(word) for word in stay] == stay


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Cellphones beside a cell phone", ["cell phone"]),
        ("a firehydrant", ["fire hydrant"]),
        ("an air plane over snow boards", ["airplane", "snowboard"]),
        ("a Hot-Dog, TEDDY BEARS", ["hot dog", "teddy bear"]),
        ("the elephant's ears", ["elephant"]),
        ("people", ["person"]),
        ("a sports car and two sportsballs", ["car", "sports ball"]),
        ("a category of carpets", []),
        ("", []),
    ],
)
def test_words_are_whole_and_spelling_is_free(sentence: str, expected: list[str]) -> None:
    assert named("coco", sentence) == expected


def test_labels_come_in_order_of_first_mention_and_once() -> None:
    assert named("dog, cat, sofa", "A cat, a dog and another cat on a sofa.") == ["cat", "dog", "sofa"]


def test_duplicates_count_man_and_woman_as_two_persons() -> None:
    sentence = "A man and a woman with a dog."
    person, dog = COCO.index("person"), COCO.index("dog")
    assert coco_filter(sentence, duplicates=True) == [person, person, dog]
    assert label_matches([sentence, "nothing"], COCO) == [[person, dog], []]


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        ("dog", "Two hot dogs and a prairie dog."),
        ("bear", "a child with a teddy bear"),
        ("fire", "a red fire hydrant"),
        ("lion, sea", "sea lions"),
        ("plants", "a nuclear power plant"),
        ("toilet", "a roll of toilet paper"),
        ("clock", "at five o'clock"),
        ("glacier, ice", "an ice cream"),
        ("bus", "waiting at a bus stop"),
        ("orange, remote", "an orange cat in a remote village under an orange sunset"),
    ],
)
def test_phrases_that_swallow_a_word_without_naming_it(labels: str, sentence: str) -> None:
    assert named(labels, sentence) == []


@pytest.mark.parametrize(
    ("labels", "sentence", "expected"),
    [
        ("dog, hotdog", "a hot dog", ["hotdog"]),
        ("bear, teddy bear", "a teddy bear and a bear", ["teddy bear", "bear"]),
        ("mouse, computer mouse", "a computer mouse", ["computer mouse"]),
        ("truck, fire", "a fire truck", ["truck"]),
        ("toy, bear", "a toy bear", ["toy"]),
        ("glass, table, bear", "a wine glass on a dining table by a polar bear", ["glass", "table", "bear"]),
        ("bus, orange", "The bus stops by an orange on the road, oranges inside.", ["bus", "orange"]),
        (
            "voc",
            "a TV monitor on the dining table, a potted plant",
            ["tvmonitor", "diningtable", "pottedplant"],
        ),
    ],
)
def test_kinds_of_a_thing_and_labels_of_the_list_are_not_hidden(
    labels: str, sentence: str, expected: list[str]
) -> None:
    assert named(labels, sentence) == expected


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("A man ties his shoes.", ["person"]),
        ("Ties in a shop.", ["tie"]),
        ("She wants to book a room next to bears.", ["bear"]),
        ("The cook cooks the pizza.", ["person", "pizza"]),
        ("A baseball player swings a bat with a glove.", ["person", "baseball bat", "baseball glove"]),
        ("A bat hangs in a cave above a glove.", []),
        ("She plays tennis with her racket.", ["tennis racket"]),
        ("A mouse nibbles cheese.", []),
        ("A keyboard and a mouse.", ["keyboard", "mouse"]),
        ("A glass of red wine on a coffee table.", ["wine glass"]),
        ("A couple of dogs.", ["dog"]),
        ("A couple with a dog.", ["person", "dog"]),
        ("A cat walks; cars line the street.", ["cat", "car"]),
        ("Buses stop at a hot dog stand.", ["bus"]),
        ("A bird watching TV.", ["bird", "tv"]),
        ("A train crossing a bridge.", ["train"]),
        ("A woman in orange with an orange.", ["person", "orange"]),
    ],
)
def test_the_sentence_decides_what_a_word_means(sentence: str, expected: list[str]) -> None:
    assert named("coco", sentence) == expected


def test_a_mouse_is_an_animal_in_a_list_without_computers() -> None:
    assert named("mouse, cat", "A mouse nibbles cheese.") == ["mouse"]
    assert named("table", "a coffee table") == ["table"]


def test_a_comma_ends_a_phrase() -> None:
    assert named("dog, hot dog", "It was hot, dogs slept.") == ["dog"]


def test_function_words_never_become_part_of_a_joined_label() -> None:
    assert named("herring, bean", "She shows her ring and wants to be an artist.") == []
    assert named("seashell", "a sea shell") == ["seashell"]


def test_a_name_goes_before_the_synonym_of_another_label() -> None:
    labels = {"sofa": ["couch"], "couch": [], "bench": ["couch"]}
    assert named(labels, "a couch") == ["couch"]


def test_a_synonym_of_two_labels_names_both() -> None:
    assert named({"person": ["kid"], "child": ["kid"]}, "two kids") == ["person", "child"]


def test_other_languages() -> None:
    assert named(["Straßenbahn", "café"], "Eine STRASSENBAHN vor dem cafe\u0301") == ["Straßenbahn", "café"]
    assert named(["狗", "自行车"], "一只狗和一辆自行车") == ["狗", "自行车"]
    assert named(["किताब", "कताब"], "मेज पर किताब") == ["किताब"]
