"""The page in a real browser: photos in, labels and where they are out, and nothing to another host."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import mltta
from tests.serve.browser import PHOTOS, TOKEN, Visit, chromium, missing
from tests.serve.running import serving

PAGE = Path(mltta.__file__).parent / "assets" / "page"
LABELS = "cat | kitty\ncoffee\ncup\ndog, tree, train"
#: photographs in the public domain, or CC0
FREE = ("astronaut", "bee", "cat", "coffee", "officer", "photographer")
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if why := missing():
        pytest.skip(why)
    with serving(token=TOKEN) as url:
        yield url


@pytest.fixture(scope="module")
def browser(server: str) -> Iterator[Any]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def visit(server: str, browser: Any) -> Iterator[Callable[..., Visit]]:
    """Open the page; at the end it must have complained of nothing and asked nobody else."""
    visits: list[Visit] = []

    def opened(**context: Any) -> Visit:
        visits.append(Visit(browser, server, **context))
        return visits[-1]

    yield opened
    for one in visits:
        one.context.close()
        assert not one.complaints
        assert not one.strangers()


@pytest.mark.parametrize("file", sorted(PAGE.iterdir()), ids=lambda file: file.name)
def test_no_file_of_the_page_names_a_host_or_turns_text_into_markup(file):
    text = file.read_text(encoding="utf-8")
    assert not re.findall(r"(?:https?:)?//[\w-]+\.\w+", text)
    assert not re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|\bstyle=|\bonclick=\"", text
    )


def test_two_photos_two_methods_heat_filter_and_csv(visit, tmp_path):
    seen = visit()
    page = seen.page
    seen.add(PHOTOS / "cat.jpg", PHOTOS / "dogs.jpg")
    seen.type_labels(LABELS)
    seen.tag("auto")
    assert page.locator("#count").inner_text() == "2 photos"
    assert seen.tile("cat.jpg").locator(".said").inner_text() == "cat"

    seen.tile("dogs.jpg").click()
    before = seen.bars()
    assert set(before) == {"cat", "coffee", "cup", "dog", "tree", "train"}
    assert any(own != plain for own, plain in before.values())
    assert not seen.heat()
    page.click("#bars button[data-label=dog]")
    heat = seen.heat()
    assert 230 in heat[0::4], "somewhere it is warm"
    assert 0 in heat[0::4], "and elsewhere dark"
    assert re.fullmatch(r"auto with mini: \d+\.\d\d s", page.locator("#took").inner_text())
    page.keyboard.press("Escape")

    seen.tag("tpt", views=4)
    seen.tile("dogs.jpg").click()
    assert page.locator("#took").inner_text().startswith("tpt (views 4) with mini: ")
    after = seen.bars()
    assert {name: own for name, (own, _) in before.items()} != {name: own for name, (own, _) in after.items()}
    assert {name: plain for name, (_, plain) in before.items()} == {
        name: plain for name, (_, plain) in after.items()
    }
    page.keyboard.press("Escape")

    seen.tag("auto")
    page.click("#chips button[data-label=cat]")
    assert page.locator("#count").inner_text() == "1 of 2 photos"
    assert page.locator(".tile .file").all_inner_texts() == ["cat.jpg"]
    page.click("#chips button[data-label=cat]")

    rows = list(csv.DictReader(seen.download("csv", tmp_path).open(encoding="utf-8", newline="")))
    assert list(rows[0]) == ["image", "label", "score", "present", "error"]
    assert ("cat.jpg", "cat") in {(row["image"], row["label"]) for row in rows}
    shown = {row["label"]: f"{float(row['score']):.2f}" for row in rows if row["image"] == "dogs.jpg"}
    assert shown.items() <= {name: own for name, (own, _) in before.items()}.items()
    assert "dog" in shown
    assert {one["image"] for one in json.loads(seen.download("json", tmp_path).read_bytes())} == {
        "cat.jpg",
        "dogs.jpg",
    }
    with zipfile.ZipFile(seen.download("xmp", tmp_path)) as sidecars:
        sure = {row["image"] for row in rows if float(row["score"] or 0) >= 0.7}
        assert sorted(sidecars.namelist()) == sorted(f"{name}.xmp" for name in sure)
        assert b"<rdf:li>cat</rdf:li>" in sidecars.read("cat.jpg.xmp")


def test_markup_in_a_file_name_or_a_label_stays_text(visit, tmp_path):
    photo = tmp_path / f"{HOSTILE.replace('/', '')}.jpg"
    shutil.copy(PHOTOS / "cat.jpg", photo)
    seen = visit()
    seen.add(photo)
    seen.type_labels(f"cat\n{HOSTILE}")
    seen.tag("clip")
    tile = seen.page.locator(".tile")
    assert tile.locator(".file").inner_text() == photo.name
    tile.click()
    assert seen.page.locator("#name").inner_text() == photo.name
    seen.disclose("#more")
    assert HOSTILE in seen.page.locator("#bars b").all_inner_texts()
    assert seen.page.locator("img[onerror], img[src=x]").count() == 0


def test_a_file_that_is_no_photo_is_a_card_with_its_sentence(visit, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"not a photo")
    seen = visit()
    seen.add(tmp_path / "broken.jpg", PHOTOS / "cat.jpg")
    seen.type_labels("cat, dog")
    seen.tag("clip")
    assert "image" in seen.tile("broken.jpg").locator(".said").inner_text()
    assert "1 file could not be read" in seen.page.locator("#progress").inner_text()
    assert seen.page.locator(".tile.bad").count() == 1


def test_an_empty_list_of_labels_is_a_sentence_on_the_page(visit):
    seen = visit()
    seen.add(PHOTOS / "cat.jpg")
    seen.type_labels(" , ")
    seen.page.click("#run")
    assert seen.page.get_by_role("alert").inner_text() == "Type at least one label.\n×"
    seen.page.click("#dismiss")
    assert not seen.page.get_by_role("alert").is_visible()


def test_the_keyboard_is_enough(visit):
    seen = visit()
    page, press = seen.page, seen.page.keyboard.press
    seen.add(PHOTOS / "cat.jpg", PHOTOS / "dogs.jpg")
    seen.type_labels(LABELS)
    page.focus("#run")
    press("Enter")
    page.locator("#progress", has_text="Tagged").wait_for()
    press("/")
    assert page.locator("#search").evaluate("(box) => box === document.activeElement")
    page.focus(".tile[tabindex='0']")
    press("Enter")
    assert page.locator("#name").inner_text() == "cat.jpg"
    press("ArrowDown")
    assert seen.heat()
    press("ArrowRight")
    assert page.locator("#name").inner_text() == "dogs.jpg"
    press("Escape")
    page.locator(":focus .file", has_text="dogs.jpg").wait_for()  # where the eye is, once the dialog is gone
    press("ArrowLeft")
    assert page.locator(":focus .file").inner_text() == "cat.jpg"


def test_method_and_model_are_under_advanced(visit):
    seen = visit()
    page = seen.page
    page.locator("#method option").first.wait_for(state="attached")
    assert [page.locator(f"#{name}").is_visible() for name in ("list", "method", "model")] == [
        True,
        False,
        False,
    ]
    seen.disclose("#advanced")
    assert page.locator("#method").is_visible()
    assert page.locator("#model").is_visible()


def test_a_photo_shows_its_labels_and_under_advanced_all_scores_and_clip(visit):
    seen = visit()
    page = seen.page
    seen.add(PHOTOS / "dogs.jpg")
    seen.type_labels(LABELS)
    seen.tag("auto")
    calls = sum(url.endswith("/v1/tag") for url in seen.requests)
    seen.tile("dogs.jpg").click()
    shown = page.locator("#bars b").all_inner_texts()
    assert shown == seen.tile("dogs.jpg").locator(".said").inner_text().split(", ")
    assert page.locator("#bars .beside").count() == 0
    assert not page.locator("#took").is_visible()
    page.click("#bars button[data-label=dog]")
    assert page.locator(".captions p").inner_text() == "Captions of similar pictures"
    assert page.locator(".captions li").count()
    assert not page.locator(".captions small").first.is_visible()
    assert page.locator("#hint").inner_text() == "Red: where “dog” was found. Dark: the rest of the photo."
    assert sum(url.endswith("/v1/tag") for url in seen.requests) == calls, (
        "plain CLIP is asked under Advanced only"
    )
    assert len(seen.bars()) == 6 > len(shown)
    assert page.locator("#took").is_visible()
    assert page.locator(".captions small").first.is_visible()


def test_a_photo_without_labels_says_why(visit):
    seen = visit()
    seen.add(PHOTOS / "cat.jpg")
    seen.type_labels("zebra, pizza, toilet")
    seen.tag("auto")
    why = r"No label scored at least 0\.30\. Highest: (zebra|pizza|toilet) 0\.[012]\d"
    assert re.fullmatch(why, seen.tile("cat.jpg").locator(".said").inner_text())
    seen.tile("cat.jpg").click()
    assert re.fullmatch(why, seen.page.locator("#hint").inner_text())


def test_search_knows_synonyms_and_the_filter_drops_labels_without_photos(visit):
    seen = visit()
    page = seen.page
    seen.add(PHOTOS / "cat.jpg", PHOTOS / "dogs.jpg")
    seen.type_labels("cat, dog | samoyed")
    seen.tag("auto")
    chips = page.locator("#chips button")
    assert {"cat", "dog"} == {chip.get_attribute("data-label") for chip in chips.all()}
    for word, file in (
        ("kitten", "cat.jpg"),
        ("kittens", "cat.jpg"),
        ("puppy", "dogs.jpg"),
        ("samoy", "dogs.jpg"),
    ):
        page.fill("#search", word)
        assert page.locator(".tile .file").all_inner_texts() == [file], word
    page.fill("#search", "itten")
    assert page.locator(".none").inner_text() == "No photos match."
    page.fill("#search", "")
    page.click("#chips button[data-label=cat]")
    assert [chip.get_attribute("data-label") for chip in chips.all()] == ["cat"]


def test_a_small_photo_is_enlarged_on_the_color_of_the_page(visit, tmp_path):
    Image.open(PHOTOS / "cat.jpg").resize((90, 60)).save(tmp_path / "small.png")
    seen = visit()
    seen.add(tmp_path / "small.png")
    seen.type_labels("cat, dog")
    seen.tag("auto")
    seen.tile("small.png").click()
    seen.page.wait_for_function("document.getElementById('large').getBoundingClientRect().width === 270")
    back = seen.page.locator("figure").evaluate("(box) => getComputedStyle(box).backgroundColor")
    assert back == "rgb(238, 239, 240)"


def test_a_dropped_folder_gives_its_photos_with_their_paths(visit, tmp_path):
    folder = tmp_path / "holiday"
    (folder / "inner").mkdir(parents=True)
    shutil.copy(PHOTOS / "cat.jpg", folder / "inner" / "cat.jpg")
    (folder / "notes.txt").write_text("no photo", encoding="utf-8")
    seen = visit()
    hand = seen.context.new_cdp_session(seen.page)
    held = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        hand.send("Input.dispatchDragEvent", {"type": kind, "x": 700, "y": 400, "data": held})
    seen.page.locator(".tile").wait_for()
    assert seen.page.locator(".tile").get_attribute("title") == "holiday/inner/cat.jpg"
    assert seen.page.locator("#left-out").inner_text() == "Skipped 1 file that is not an image."


def test_thousands_of_photos_are_few_tiles_in_the_page(visit):
    seen = visit()
    seen.page.evaluate(
        """() => {
          const held = new DataTransfer();
          for (let number = 0; number < 3000; number++)
            held.items.add(new File(["x"], `photo${number}.jpg`, { type: "image/jpeg" }));
          const input = document.getElementById("files");
          input.files = held.files;
          input.dispatchEvent(new Event("change"));
        }"""
    )
    assert seen.page.locator("#count").inner_text() == "3,000 photos"
    assert 4 <= seen.page.locator(".tile").count() < 60
    seen.page.focus(".tile[tabindex='0']")
    seen.page.keyboard.press("End")
    assert seen.page.locator(":focus .file").inner_text() == "photo2999.jpg"
    assert seen.page.locator(".tile").count() < 60
    seen.page.fill("#search", "photo2999")
    assert seen.page.locator("#count").inner_text() == "1 of 3,000 photos"


def test_a_busy_server_is_asked_again(server, browser):
    seen, refused = Visit(browser, server), []

    def busy(route: Any) -> None:
        if refused:
            route.continue_()
        else:
            refused.append(route)
            route.fulfill(status=429, headers={"Retry-After": "1"}, json={"error": "The queue is full."})

    seen.page.route("**/v1/tag", busy)
    seen.add(PHOTOS / "cat.jpg")
    seen.type_labels("cat, dog")
    seen.tag("clip")
    assert refused
    assert seen.tile("cat.jpg").locator(".said").inner_text() == "cat"
    assert not seen.page.get_by_role("alert").is_visible()
    seen.context.close()


def test_a_server_with_a_token_is_given_it_once(server, browser):
    seen = Visit(browser, server, token="")
    seen.page.fill("#token", "wrong")
    seen.page.keyboard.press("Enter")
    seen.page.locator("#ask[open]").wait_for()
    seen.page.fill("#token", TOKEN)
    seen.page.keyboard.press("Enter")
    seen.page.locator("#method option").first.wait_for(state="attached")
    assert not seen.page.locator("#ask").is_visible()
    assert not [asked for asked in seen.requests if TOKEN in asked]
    seen.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_wider_than_the_screen(visit, scheme):
    seen = visit(viewport={"width": 360, "height": 740}, color_scheme=scheme, has_touch=True)
    page = seen.page
    assert seen.overflow() <= 0
    seen.add(*(PHOTOS / f"{name}.jpg" for name in ("cat", "coffee", "dogs")))
    seen.type_labels(f"cat, coffee, dog, {'a very long label ' * 8}")
    seen.tag("clip")
    assert seen.overflow() <= 0
    seen.tile("dogs.jpg").click()
    assert page.locator("#photo").evaluate("(box) => box.scrollWidth - box.clientWidth") <= 0
    paper = page.locator("body").evaluate("(body) => getComputedStyle(body).backgroundColor")
    assert paper == {"light": "rgb(251, 251, 250)", "dark": "rgb(21, 23, 26)"}[scheme]


def test_every_field_has_a_name(visit):
    seen = visit()
    seen.page.locator("#method option").first.wait_for(state="attached")
    nameless = """() => [...document.querySelectorAll("input, select, textarea, button")]
        .filter((one) => !one.labels?.length && !one.ariaLabel && !one.textContent.trim()).map((one) => one.id)"""
    assert seen.page.evaluate(nameless) == []


@pytest.mark.skipif(
    "MLTTA_FIGURES" not in os.environ, reason="MLTTA_FIGURES names no folder for pictures of the page"
)
def test_pictures_of_the_page_for_the_docs(visit, tmp_path):
    folder = Path(os.environ["MLTTA_FIGURES"])

    def picture(seen: Visit, name: str) -> None:
        seen.page.wait_for_timeout(1000)  # thumbnails are made one after the other
        seen.page.screenshot(path=tmp_path / f"{name}.png")
        whole = Image.open(tmp_path / f"{name}.png").convert("RGB")
        whole.quantize(palette=whole.quantize(256)).save(folder / f"{name}.png", optimize=True)

    for name, width, height in (("desktop", 1280, 820), ("phone", 360, 740)):
        seen = visit(viewport={"width": width, "height": height}, reduced_motion="reduce")
        seen.add(*(PHOTOS / f"{photo}.jpg" for photo in FREE))
        seen.page.select_option("#list", "everyday")
        seen.tag("auto")
        seen.page.click("#advanced > summary")
        if name == "desktop":
            picture(seen, "page-gallery")
        seen.tile("bee.jpg").click()
        seen.page.click("#bars button[data-label=bee]")
        picture(seen, f"page-{name}")
