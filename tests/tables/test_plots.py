"""Figures are valid, repeatable SVG that shows every name and leaves matplotlib as it was."""

from __future__ import annotations

import base64
import io
import re
import sys
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from PIL import Image

from mltta.errors import ConfigError
from mltta.tables import plots

SVG = "{http://www.w3.org/2000/svg}"
X = [1, 2, 4, 8, 16, 32, 64, 128]
PHOTO = Image.linear_gradient("L").resize((640, 480))
LABELS = ["keyboard", "mouse", "laptop", "cat", "dog"]


def curves():
    return plots.lines("Views", X, {"ML-TTA": [*range(8)], "TPT": [None, *range(7)]}, "views", "mAP")


def bars():
    return plots.bars_by_group("Gain", ["1-2", "8+"], {"TPT": [0.12, -3.64], "RLCF": [3.25, None]}, "mAP")


def dots(labels=LABELS):
    values = [float(i) for i in range(len(labels))]
    return plots.per_class("AP", labels, {"CLIP": values, "TPT": values[::-1]})


def logits(image=PHOTO, **options):
    scores = {"CLIP": [26.0, 24.0, 25.0, 20.0, 19.0], "ML-TTA": [26.5, 24.25, 24.0, 19.0, 19.0]}
    return plots.label_logits("One image", image, LABELS, scores, {"keyboard", "mouse"}, **options)


DRAWINGS = {"lines": curves, "bars": bars, "dots": dots, "logits": logits}


def texts(svg):
    return [element.text for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def size(svg):
    root = ElementTree.fromstring(svg)
    return tuple(float(number) for number in root.get("viewBox").split()[2:])


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_figures_are_the_same_bytes_every_time_and_carry_no_date(draw):
    svg = draw()
    assert svg == draw()
    assert ElementTree.fromstring(svg).tag == f"{SVG}svg"
    assert "metadata" not in svg
    assert "dc:date" not in svg


@pytest.mark.parametrize("draw", DRAWINGS.values(), ids=DRAWINGS)
def test_figures_load_nothing_and_take_the_pages_text_colour(draw):
    svg = draw()
    assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", svg)
    assert "currentColor" in svg
    assert "#010203" not in svg


def test_ids_are_resolved_and_differ_between_figures():
    ids = {}
    for name, draw in DRAWINGS.items():
        svg = draw()
        ids[name] = set(re.findall(r'\bid="([^"]+)"', svg))
        assert set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg)) == ids[name]
    everything = [name for names in ids.values() for name in names]
    assert len(everything) == len(set(everything))


def test_text_stays_text_and_names_are_not_markup():
    awkward = ["a & b", "<b>", "$5 or $6", 'id="x" url(#y) 3.14159', "犬"]
    assert set(awkward) <= set(texts(dots(awkward)))


def test_all_text_lies_inside_the_picture():
    names = [f"a label with a long name, number {number}" for number in range(80)]
    svg = plots.per_class("A title " * 20, names, {"CLIP": [0.5] * 80, "a series of some length": [0.6] * 80})
    width, height = size(svg)
    for element in ElementTree.fromstring(svg).iter(f"{SVG}text"):
        moved = re.search(r"translate\(([\d.]+) ([\d.]+)\)", element.get("transform", ""))
        x, y = map(float, moved.groups() if moved else (element.get("x"), element.get("y")))
        style = element.get("style")
        pixels, bold = float(re.search(r"([\d.]+)px", style)[1]), re.search("700|bold", style) is not None
        font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
        wide = TextPath((0, 0), element.text, size=pixels, prop=font).get_extents().width
        anchor = re.search(r"text-anchor: (\w+)", style)
        left = {"start": 0.0, "middle": wide / 2, "end": wide}[anchor[1] if anchor else "start"]
        assert x - left > 0
        assert x - left + wide < width
        assert 0 < y < height


def test_the_class_figure_grows_with_the_labels_and_sorts_by_the_first_series():
    few, many = dots([f"l{i}" for i in range(20)]), dots([f"l{i}" for i in range(80)])
    assert size(many)[1] > 2.5 * size(few)[1]
    named = [text for text in texts(few) if re.fullmatch(r"l\d+", text)]
    assert named == [f"l{i}" for i in range(20)]  # lowest first, drawn from the bottom up


def test_gaps_are_left_open():
    whole = plots.lines("t", [1, 2, 4], {"a": [1, 2, 3]}, "x", "y")
    gap = plots.lines("t", [1, 2, 4], {"a": [1, None, 3]}, "x", "y")
    assert whole.count("<use") == gap.count("<use") + 1
    assert [text for text in texts(whole) if text in {"1", "2", "4"}][:3] == ["1", "2", "4"]


def test_bars_say_their_values():
    assert {"0.1", "−3.6", "3.2"} <= set(texts(bars()))


def test_one_method_has_one_colour_in_all_figures():
    colour = "#0072b2"
    assert colour in curves()
    alone = plots.bars_by_group("t", ["g"], {"ml-tta": [1.0], "something new": [2.0]}, "y")
    assert alone.count(f"fill: {colour}") == 2  # its bar and its legend entry


def test_the_photograph_is_a_small_jpeg_inside_the_figure():
    uri = re.search(r'href="data:image/jpeg;base64,([^"]+)"', logits())[1]
    photo = Image.open(io.BytesIO(base64.b64decode(uri)))
    assert photo.format == "JPEG"
    assert photo.size == (320, 240)
    assert len(logits(Image.new("RGBA", (50, 20)))) < len(logits())


def test_logits_show_the_true_labels_and_the_strongest_others_with_their_change():
    shown = texts(logits(top=3))
    assert [text for text in shown if text in LABELS] == ["mouse", "laptop", "keyboard"]
    assert {"+0.50", "+0.25", "−1.00"} <= set(shown)
    assert {"true label", "other label", "CLIP was here"} <= set(shown)
    bold = re.findall(r'<text style="[^"]*(?:700|bold)[^"]*"[^>]*>(keyboard|mouse|laptop)<', logits(top=3))
    assert bold == ["mouse", "keyboard"]


def test_drawing_leaves_the_settings_of_matplotlib_alone():
    before = dict(matplotlib.rcParams)
    curves()
    assert dict(matplotlib.rcParams) == before


def test_the_users_own_style_does_not_change_a_figure():
    plain = curves()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.fonttype": "path"}):
        assert curves() == plain


def test_pyplot_is_never_imported():
    sys.modules.pop("matplotlib.pyplot", None)
    curves()
    assert "matplotlib.pyplot" not in sys.modules


def test_values_that_do_not_fit_are_refused_by_name():
    with pytest.raises(ConfigError, match="'TPT' of figure 't' has 1 values for 2 x"):
        plots.lines("t", [1, 2], {"TPT": [1]}, "x", "y")
    with pytest.raises(ConfigError, match="at least one method"):
        plots.label_logits("t", PHOTO, ["a"], {}, {"a"})


def test_a_frontier_joins_those_that_nothing_cheaper_equals():
    points = {"cheap": (1.0, 50.0), "worse": (2.0, 49.0), "dear": (64.0, 60.0), "same price": (64.0, 55.0)}
    svg = plots.pareto("mAP over price", points, "views", "mAP")
    bold = {name for name in points if re.search(rf"<text[^>]*(bold|700)[^>]*>{name}<", svg)}
    assert bold == {"cheap", "dear"}
    assert all(f">{name}<" in svg for name in points)
