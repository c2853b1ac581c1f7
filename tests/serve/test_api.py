"""The API answers as the tagger does, and says in a sentence what it will not do."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import json
import re
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from mltta import Tagger
from mltta.output.formats import csv_lines
from mltta.output.keywords.xmp import Packet
from mltta.serve.client import Client, ServerError
from mltta.serve.offer import Limits
from tests.serve.running import PHOTOS, mini, serving

LABELS = ["person", "dog", "train", "boat | ship", "flower"]


def offline(method: str = "auto", labels=LABELS, **options) -> Tagger:
    return Tagger(mini(), labels, method, **options)


def test_a_form_is_answered_to_the_bit_as_the_tagger_answers(client):
    tagger = offline()
    for entry, photo in zip(client.tag(PHOTOS[:3], LABELS), PHOTOS, strict=False):
        want = tagger(photo)
        assert entry["image"] == photo.name
        assert entry["present"] == want.present
        assert entry["labels"] == want.shown


def test_json_is_answered_as_a_form_is(client, url):
    image = {"name": "a.jpg", "data": base64.b64encode(PHOTOS[0].read_bytes()).decode()}
    call = {"images": [image], "labels": LABELS, "method": "clip", "all": True}
    answer = httpx.post(f"{url}/v1/tag", json=call).json()
    assert (answer["model"], answer["method"], answer["labels"]) == ("mini", "clip", 5)
    assert answer["images"][0]["labels"] == list(offline("clip")(PHOTOS[0]))
    (form,) = client.tag([PHOTOS[0]], LABELS, method="clip", all=True)
    assert form["labels"] == answer["images"][0]["labels"]


def test_many_calls_at_once_are_answered_each_with_its_own(url):
    tagger = {method: offline(method) for method in ("auto", "clip")}

    def ask(number: int) -> bool:
        method, photo = ("auto", "clip")[number % 2], PHOTOS[number % len(PHOTOS)]
        with Client(url) as client:
            (entry,) = client.tag([photo], LABELS, method=method)
        return bool(entry["labels"] == tagger[method](photo).shown)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(10)))


def test_an_online_method_remembers_within_a_call_and_not_between_calls(client):
    want = [tags.shown for tags in offline("tda").stream(PHOTOS[:3])]
    for _ in range(2):
        assert [entry["labels"] for entry in client.tag(PHOTOS[:3], LABELS, method="tda")] == want


def test_where_and_captions_come_when_they_are_asked_for(client):
    photo = next(photo for photo in PHOTOS if photo.stem == "dogs")
    (plain,) = client.tag([photo], "dog, train")
    assert not {"where", "captions"} & set(plain)
    (entry,) = client.tag([photo], "dog, train", where=True, captions=True)
    want = offline(labels="dog, train", where=True, explain=True)(photo)
    assert entry["present"] == list(entry["where"]) == list(entry["captions"]) == ["dog"]
    heat = np.rint(255 * want.where["dog"] / want.where["dog"].max()).astype(int)
    assert entry["where"]["dog"] == {"rows": 16, "columns": 16, "heat": heat.ravel().tolist()}
    said = [caption["text"] for caption in entry["captions"]["dog"]]
    assert said == [text for text, _ in want.captions["dog"]]
    assert len(said) == 3
    assert all(re.search(r"dog|pupp|canine|hound", text.lower()) for text in said)


@pytest.mark.parametrize("asked", [{"threshold": 0.0}, {"threshold": 0.0, "top_k": 2}])
def test_a_lower_threshold_of_a_call_brings_heat_for_the_labels_it_shows(client, asked):
    photo = next(photo for photo in PHOTOS if photo.stem == "dogs")
    (usual,) = client.tag([photo], "dog, train, boat", where=True)
    (entry,) = client.tag([photo], "dog, train, boat", where=True, **asked)
    want = offline(labels="dog, train, boat", where=True, **asked)(photo)
    assert len(entry["present"]) > len(usual["present"])
    assert entry["present"] == list(entry["where"]) == want.present
    for label, grid in want.where.items():
        heat = np.rint(255 * grid / max(float(grid.max()), 1e-12)).astype(int)
        assert entry["where"][label]["heat"] == heat.ravel().tolist()


def test_an_image_without_labels_says_why(client):
    (entry,) = client.tag([PHOTOS[4]], ["zebra", "pizza", "toilet"])
    assert (entry["image"], entry["present"]) == ("cat.jpg", [])
    assert entry["note"] == offline(labels=["zebra", "pizza", "toilet"])(PHOTOS[4]).note
    assert entry["note"].startswith("No label scored at least 0.30. Highest: ")
    assert "note" not in client.tag([PHOTOS[4]], ["cat"])[0]


def test_labels_may_be_lines_commas_or_the_name_of_a_set(client):
    for given in ("person\ndog, train", ["person", "dog", "train"]):
        (entry,) = client.tag([PHOTOS[0]], given, all=True)
        assert sorted(item["label"] for item in entry["labels"]) == ["dog", "person", "train"]
    (entry,) = client.tag([PHOTOS[0]], "coco", all=True)
    assert len(entry["labels"]) == 80
    assert client.labels("voc")[:2] == ["aeroplane", "bicycle"]


@pytest.mark.parametrize(
    "asked", [{"top_k": 2}, {"threshold": 0.0}, {"threshold": 1.0}, {"threshold": 0.1, "top_k": 3}]
)
@pytest.mark.parametrize("method", ["auto", "clip"])
def test_what_is_present_is_what_top_k_and_threshold_ask_for(client, method, asked):
    (entry,) = client.tag([PHOTOS[0]], LABELS, method=method, **asked)
    want = offline(method, **asked)(PHOTOS[0])
    assert entry["present"] == [item["label"] for item in entry["labels"]] == want.present
    assert entry["labels"] == want.shown
    (whole,) = client.tag([PHOTOS[0]], LABELS, method=method, all=True, **asked)
    assert whole["present"] == want.present
    assert whole["labels"] == list(want)


def test_languages_keywords_and_what_cannot_be_judged_are_answered(client, url):
    call = {
        "images": [{"data": base64.b64encode(PHOTOS[0].read_bytes()).decode()}],
        "labels": "coco",
        "all": True,
    }

    def tag(**more: object) -> httpx.Response:
        return httpx.post(f"{url}/v1/tag", json=call | more, timeout=180)

    english, german = tag().json(), tag(language="de", keywords_from=0).json()
    own, other = english["images"][0], german["images"][0]
    assert [one["score"] for one in own["labels"]] == [one["score"] for one in other["labels"]]
    assert "Hund" in [one["label"] for one in other["labels"]]
    assert other["keywords"] == other["present"]
    listed = httpx.get(f"{url}/v1/labels/coco", params={"language": "de"}).json()
    assert {one["label"] for one in other["labels"]} == set(listed["labels"])
    assert httpx.get(f"{url}/v1/labels").json()["languages"]["de"] == "German"
    wrong = tag(language="xx")
    assert (wrong.status_code, "Available: en (English), de (German)" in wrong.json()["error"]) == (422, True)
    notes = tag(labels="Hund, Katze, happy").json()["notes"]
    assert ["German" in notes[0], "moods" in notes[1]] == [True, True]


def test_a_file_of_all_labels_holds_those_present(client, url):
    entries = client.tag([PHOTOS[0]], LABELS, all=True, top_k=2)
    answer = httpx.post(f"{url}/v1/export", json={"format": "json", "images": entries}).json()
    assert [item["label"] for item in answer[0]["labels"]] == answer[0]["present"] == entries[0]["present"]


def test_a_broken_image_is_an_entry_and_the_others_are_tagged(client):
    broken, fine = client.tag([PHOTOS[0].read_bytes()[:900], PHOTOS[0]], LABELS)
    assert broken["error"].startswith("image 1: damaged or incomplete")
    assert fine["labels"] == offline()(PHOTOS[0]).shown


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        ({"method": "nonsense"}, 422, "unknown method 'nonsense'; available: auto"),
        ({"model": "ViT-L-14"}, 422, "unknown model 'ViT-L-14'; available: mini"),
        ({"settings": {"effort": "huge"}}, 422, "effort = 'huge': choose from fast, best"),
        ({"method": "ml-tta", "settings": {"views": 4000}}, 422, "views: must be an integer from 1 to 128"),
        ({"settings": {"slope": 3}}, 422, "'slope' cannot be set here; available settings of auto: effort"),
        ({"method": "clip", "where": True}, 422, "clip does not support heat maps; use auto"),
        ({"labels": ["dog"] * 1001}, 422, "too many labels and synonyms: 1,001"),
        ({"labels": ["d" * 201]}, 422, "has 201 characters; the limit is 200"),
        ({"labels": " , "}, 422, "is empty"),
        ({"labels": ["a\0b"]}, 422, "contains a control character"),
        ({"top_k": 0}, 422, "top_k: Input should be greater than or equal to 1"),
    ],
)
def test_what_is_not_offered_is_refused_with_a_sentence(client, asked, status, said):
    with pytest.raises(ServerError) as caught:
        client.tag([PHOTOS[0]], **asked)
    assert caught.value.status == status
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "content", "status", "said"),
    [
        ("text/plain", b"hello", 415, "multipart/form-data"),
        ("application/json", b"{", 422, "the body: Invalid JSON"),
        ("application/json", b'{"images": []}', 422, "images: List should have at least 1 item"),
        ("application/json", b'{"images": [{}]}', 422, "image 1: give either data or url"),
        (
            "application/json",
            b'{"images": [{"url": "http://127.0.0.1/"}]}',
            422,
            "does not fetch URLs",
        ),
        ("application/json", b'{"images": [{"data": ""}], "labelz": []}', 422, "labelz: Extra inputs"),
        ("application/json", b"[" * 100_000, 413, "too many parts"),
        ("application/json", b"[" * 1000, 422, "the body"),
        ("multipart/form-data", b"x", 400, "the form cannot be read"),
        ("multipart/form-data; boundary=x", b"--x--\r\n", 422, "images: send at least one file"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused_with_a_sentence(url, kind, content, status, said):
    answer = httpx.post(f"{url}/v1/tag", content=content, headers={"content-type": kind})
    assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text


def test_what_a_server_has_can_be_asked(client, url):
    assert client.models() == [{"name": "mini", "default": True, "image_size": mini().preprocess.size}]
    assert [(one["name"], one["where"], one["online"]) for one in client.methods()][:2] == [
        ("auto", True, False),
        ("clip", False, False),
    ]
    assert {"voc", "coco", "everyday", "nuswide"} <= set(client.labels())
    assert "kitten" in httpx.get(f"{url}/v1/labels/everyday").json()["synonyms"]["cat"]
    assert client.ready()
    assert httpx.get(f"{url}/health").json() == {"status": "ok"}
    assert 'mltta_calls_total{route="/v1/models",status="200"}' in httpx.get(f"{url}/metrics").text
    assert httpx.get(f"{url}/nothing").json()["error"].startswith("no such route")


def test_answers_are_written_as_the_command_line_writes_them(client, url):
    entries = client.tag([*PHOTOS[:2], b"no image"], LABELS)
    answer = httpx.post(f"{url}/v1/export", json={"format": "csv", "images": entries})
    tagger = offline()
    records = [{**tagger(photo).record(), "image": photo.name} for photo in PHOTOS[:2]]
    want = "".join(csv_lines().pieces([*records, {"image": "image 3", "error": entries[2]["error"]}]))
    assert answer.text == want
    assert next(csv.reader(io.StringIO(answer.text))) == ["image", "label", "score", "present", "error"]
    read = json.loads(httpx.post(f"{url}/v1/export", json={"format": "json", "images": entries}).text)
    assert [one.get("present") for one in read] == [one.get("present") for one in entries]


def test_sidecars_come_in_a_zip_that_leads_nowhere_else(url):
    entries = [
        {"image": "../../etc/passwd", "present": ["dog", "a\x00<b>"], "labels": []},
        {"image": "C:\\photos\\a.jpg", "present": ["dog"], "labels": []},
        {"image": "empty.jpg", "present": [], "labels": []},
    ]
    answer = httpx.post(f"{url}/v1/export", json={"format": "xmp", "images": entries})
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.namelist() == ["etc/passwd.xmp", "C_/photos/a.jpg.xmp"]
        assert Packet(archive.read("etc/passwd.xmp"), "x").subjects == ["dog", "a_<b>"]


def test_label_lists_are_kept_up_to_a_bound_and_answers_stay_the_same():
    with serving(("clip",), limits=Limits(label_lists=2)) as url, Client(url) as client:
        first = client.tag([PHOTOS[0]], ["dog", "person"])
        for number in range(4):
            client.tag([PHOTOS[0]], ["dog", f"thing {number}"])
        figures = httpx.get(f"{url}/metrics").text.splitlines()
        assert "mltta_label_lists 2.0" in figures
        again = client.tag([PHOTOS[0]], ["dog", "person"])
    assert [{**one, "ms": 0} for one in first] == [{**one, "ms": 0} for one in again]


def test_an_answer_that_takes_too_long_is_given_up_and_the_next_call_is_served():
    with serving(("ml-tta", "clip"), limits=Limits(seconds=1)) as url, Client(url, retries=0) as client:
        with pytest.raises(ServerError, match="timeout after 1 seconds"):
            client.tag(PHOTOS, LABELS, method="ml-tta", settings={"views": 16, "steps": 8})
        end, found = time.monotonic() + 60, []
        while not found and time.monotonic() < end:
            with contextlib.suppress(ServerError):  # photos that were begun are finished first
                found = client.tag([PHOTOS[0]], LABELS, method="clip")
        assert "labels" in found[0]
