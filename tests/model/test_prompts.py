"""Templates, sets of templates and the user's own descriptions: what a label's feature is made of."""

from __future__ import annotations

import json
import logging

import open_clip
import pytest
import torch
import torch.nn.functional as F

from mltta.errors import ConfigError, LabelError
from mltta.labels import LabelSet
from mltta.model.backbone import Backbone
from mltta.model.label_encoder import TextTower
from mltta.model.prompts import Descriptions, list_templates, load_descriptions
from tests import golden_data as golden

LABELS = LabelSet.of(["dog", "traffic_light", "Sofa"])
TEMPLATES = ["a photo of a {}.", "the {} in a video game.", "{}"]
SENTENCES = {"Sofa": ["a couch for three people."], "dog": ["a furry animal.", "it barks at the postman."]}


@pytest.fixture(scope="module")
def tiny() -> Backbone:
    return golden.backbone("vit")


def average(backbone: Backbone, *texts: str) -> torch.Tensor:
    """The plain average of unit features, made unit again."""
    return F.normalize(backbone.encode_texts(texts).mean(dim=0), dim=-1)


def write(path, content) -> str:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return str(path)


def test_several_templates_average_to_the_mean_of_their_unit_features(tiny):
    encoder = tiny.encode_labels(LABELS, TEMPLATES)
    for i, text in enumerate(LABELS.texts):
        want = average(tiny, *(template.format(text) for template in TEMPLATES))
        torch.testing.assert_close(encoder.features[i], want, atol=2e-6, rtol=0)
    assert not encoder.tunable


def test_descriptions_join_the_mean_as_they_stand_and_labels_without_keep_their_templates(tiny):
    features = tiny.encode_labels(LABELS, "a {}.", descriptions=SENTENCES).features
    want = [
        average(tiny, "a dog.", *SENTENCES["dog"]),
        average(tiny, "a traffic light."),
        average(tiny, "a Sofa.", *SENTENCES["Sofa"]),
    ]
    torch.testing.assert_close(features, torch.stack(want), atol=2e-6, rtol=0)


def test_templates_and_descriptions_weigh_the_same_sentence_by_sentence(tiny):
    features = tiny.encode_labels(LABELS, TEMPLATES, descriptions=SENTENCES).features
    want = average(tiny, "a photo of a dog.", "the dog in a video game.", "dog", *SENTENCES["dog"])
    torch.testing.assert_close(features[0], want, atol=2e-6, rtol=0)


def test_a_list_of_one_template_is_that_template_to_the_bit_and_can_be_tuned(tiny):
    one, listed = tiny.encode_labels(LABELS, "a bad {}."), tiny.encode_labels(LABELS, ["a bad {}."])
    assert torch.equal(one.features, listed.features)
    assert listed.tunable
    assert torch.equal(one.context, listed.context)
    assert tiny.encode_labels(LABELS, ["a bad {}."], torch.zeros(3, 64)).context.shape == (3, 64)


def test_the_order_of_labels_and_of_descriptions_does_not_matter(tiny):
    mixed = LabelSet.of(["Sofa", "dog", "traffic_light"])
    features = tiny.encode_labels(LABELS, TEMPLATES, descriptions=SENTENCES).features
    backwards = dict(reversed(SENTENCES.items()))
    other = tiny.encode_labels(mixed, TEMPLATES, descriptions=backwards).features
    torch.testing.assert_close(other, features[[2, 0, 1]], atol=2e-6, rtol=0)


@pytest.mark.parametrize(("name", "count"), [("openai", 80), ("simple", 7)])
def test_the_named_sets_are_those_of_open_clip(tiny, name, count):
    filled = [fill("dog") for fill in getattr(open_clip, f"{name.upper()}_IMAGENET_TEMPLATES")]
    assert [template.format("dog") for template in list_templates(name)] == filled
    assert len(filled) == count
    features = tiny.encode_labels(LabelSet.of(["dog"]), name).features
    torch.testing.assert_close(features[0], average(tiny, *filled), atol=2e-6, rtol=0)


def test_words_that_are_kept_are_those_that_are_encoded(tiny, tmp_path, monkeypatch):
    """A method's scores do not depend on whether the vocabulary was made on this machine before."""
    monkeypatch.setenv("MLTTA_CACHE", str(tmp_path))
    monkeypatch.setattr(tiny, "_vocabularies", {})
    labels = LabelSet.of(["dog", "traffic light"])
    encoded = tiny.encode_labels(labels, "simple").features
    tiny.vocabulary("simple")
    looked_up = tiny.encode_labels(labels, "simple").features
    tiny._vocabularies.clear()
    read = tiny.encode_labels(labels, "simple").features
    assert len(tiny._vocabularies) == 1, "it was read from the cache"
    torch.testing.assert_close(looked_up, encoded, atol=2e-6, rtol=0)
    assert torch.equal(read, looked_up)


def test_a_text_tower_without_a_context_to_tune_averages_too(tiny, monkeypatch):
    want = tiny.encode_labels(LABELS, TEMPLATES, descriptions=SENTENCES).features
    monkeypatch.setattr(tiny, "tower", TextTower(tiny.model))
    monkeypatch.setattr(tiny.tower, "tunable", False)
    got = tiny.encode_labels(LABELS, TEMPLATES, descriptions=SENTENCES).features
    torch.testing.assert_close(got, want, atol=2e-6, rtol=0)


def test_wrong_templates_are_refused(tiny):
    with pytest.raises(ConfigError, match=r"one \{\}.*got 'opnai'.*sets of templates: openai and simple"):
        list_templates("opnai")
    with pytest.raises(ConfigError, match=r"one \{\}.*got 'no hole'"):
        list_templates(["a {}.", "no hole"])
    with pytest.raises(ConfigError, match="no prompt template given"):
        list_templates([])
    for wrong in ([7], 7, [None]):
        with pytest.raises(ConfigError, match="a prompt template must be a string"):
            list_templates(wrong)
    with pytest.raises(ConfigError, match="no single context"):
        tiny.encode_labels(LABELS, ["a {}.", "the {}."], torch.zeros(1, 64))


def test_labels_and_descriptions_that_are_too_long_are_named_and_refused(tiny):
    with pytest.raises(LabelError, match=r"label 'word word.*too long.*takes at most 75"):
        tiny.encode_labels(LabelSet.of(["dog", "word " * 72]), ["{}", "a very bad photo of a {}."])
    with pytest.raises(
        LabelError, match=r"description of label 'dog' is too long: 'wag wag.*\d+ tokens.*at most 75"
    ):
        tiny.encode_labels(LABELS, descriptions={"dog": ["a dog.", "wag " * 200]})


def test_descriptions_come_from_a_json_file_in_any_spelling_of_the_labels(tmp_path, caplog):
    file = write(
        tmp_path / "d.json", {"DOG": ["it  barks. "], "traffic light": ["red, green."], "sofa": ["soft."]}
    )
    found = load_descriptions(file, LABELS)
    assert found == {"dog": ("it barks.",), "traffic_light": ("red, green.",), "Sofa": ("soft.",)}
    assert not caplog.records


def test_labels_without_descriptions_are_mentioned_once(tiny, caplog):
    with caplog.at_level(logging.WARNING, logger="mltta"):
        found = load_descriptions({"dog": ["it barks."]}, LABELS)
        tiny.encode_labels(LABELS, descriptions=found)
    assert [record.getMessage() for record in caplog.records] == [
        "descriptions: 2 of 3 labels have no descriptions (traffic_light, Sofa); they use templates only"
    ]
    caplog.clear()
    load_descriptions({"dog": ["it barks."]}, LabelSet.of(["dog", *(f"thing {i}" for i in range(9))]))
    assert (
        "9 of 10 labels have no descriptions (thing 0, thing 1, thing 2, thing 3, thing 4, …)" in caplog.text
    )


def test_descriptions_checked_for_another_list_are_checked_again():
    checked = Descriptions({"dog": ("it barks.",)})
    assert load_descriptions(checked, LABELS) is checked
    with pytest.raises(LabelError, match="No label 'dog'"):
        load_descriptions(checked, LabelSet.of(["cat"]))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"dgo": ["it barks."]}, r"No label 'dgo' among the 3 labels.*Did you mean 'dog'\?"),
        ({"dog": []}, "label 'dog': the list of descriptions is empty; add a sentence or remove the label"),
        ({"dog": "it barks."}, "label 'dog': descriptions must be a list of sentences, not 'it barks.'"),
        ({"dog": {"a": 1}}, "label 'dog': descriptions must be a list"),
        ({"dog": ["it barks.", 3]}, "label 'dog': a description must be a sentence, not 3"),
        ({"dog": [" "]}, "label 'dog': a description must be a sentence, not ' '"),
        ({"dog": ["a."], "Dog": ["b."]}, "label 'dog' is described twice"),
        ('{"dog": ["a."], "dog": ["b."]}', "label 'dog' is described twice"),
        (["dog"], "give a mapping from labels to lists of sentences"),
        ("{", "not valid JSON"),
    ],
)
def test_a_wrong_file_of_descriptions_is_named_with_what_is_wrong(tmp_path, content, said):
    file = write(tmp_path / "mine.json", content)
    with pytest.raises(LabelError, match=rf"mine\.json: {said}|mine\.json: .*{said}"):
        load_descriptions(file, LABELS)


def test_descriptions_that_cannot_be_read_say_why(tmp_path):
    with pytest.raises(LabelError, match="no such file"):
        load_descriptions(tmp_path / "none.json", LABELS)
    with pytest.raises(LabelError, match="is a folder, not a file"):
        load_descriptions(tmp_path, LABELS)
    (tmp_path / "latin.json").write_bytes(b'{"dog": ["\xe9"]}')
    with pytest.raises(LabelError, match="not valid JSON in UTF-8"):
        load_descriptions(tmp_path / "latin.json", LABELS)
    with pytest.raises(LabelError, match="descriptions: give a mapping"):
        load_descriptions(["it barks."], LABELS)
