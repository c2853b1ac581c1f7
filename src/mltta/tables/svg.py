"""Figures drawn by matplotlib as small, reproducible SVG that adapts to the page's colours."""

from __future__ import annotations

import base64
import html
import io
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from itertools import cycle
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image, ImageOps

#: Colours distinguishable for colour-blind readers and on light and dark pages (after Okabe and Ito).
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6BB1", "#7F7F7F")
#: The same method has the same colour in every figure.
KNOWN = dict(zip(("ml-tta", "tpt", "tda", "rlcf", "difftpt", "dmn", "dart", "clip"), PALETTE, strict=True))
MARKERS = "os^DvP<"  # one fewer than colours, so that combinations repeat late

_INK = "#010203"  # placeholder for the page's text colour
_STYLE: dict[Any, Any] = {
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica", "sans-serif"],
    "font.size": 9,
    **dict.fromkeys(("axes.titlesize", "figure.titlesize"), 10),
    **dict.fromkeys(("axes.titleweight", "figure.titleweight"), "bold"),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    "grid.color": "#888888",
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"),
    "svg.fonttype": "none",  # keep text as text: small files, selectable
    "text.parse_math": False,  # labels may contain a dollar sign
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), _INK),
}
_ROOT = "font-family: DejaVu Sans, Arial, Helvetica, sans-serif; overflow: visible"
_lock = threading.Lock()


@contextmanager
def drawing() -> Iterator[None]:
    """Use only our style, whatever the user's settings, and restore theirs afterwards."""
    own = ("backend", "date.", "interactive", "toolbar", "webagg", "timezone")
    found = matplotlib.rcParamsDefault
    defaults: dict[Any, Any] = {name: found[name] for name in found if not name.startswith(own)}
    with _lock, matplotlib.rc_context({**defaults, **_STYLE}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the browser provides the font
        yield


def colours(names: list[str]) -> dict[str, str]:
    """A colour for each series: the method's own if it has one, else the next free one."""
    known = {name: KNOWN[name.lower()] for name in names if name.lower() in KNOWN}
    free = [colour for colour in PALETTE if colour not in known.values()] or PALETTE
    return known | dict(zip((name for name in names if name not in known), cycle(free), strict=False))


class Drawing(str):
    """A figure as SVG text, which can also be drawn as pixels."""

    figure: Figure
    photos: Mapping[Axes, Image.Image]

    def png(self, dpi: int = 150) -> bytes:
        """The figure on white, as a PNG file."""
        out = io.BytesIO()
        with drawing():
            for frame, photo in self.photos.items():
                frame.imshow(photo)
            self.figure.savefig(out, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
        return out.getvalue()


def to_svg(figure: Figure, title: str, photos: Mapping[Axes, Image.Image] | None = None) -> Drawing:
    """The figure as an ``<svg>`` element for a page or a separate file.

    Args:
        title: read by screen readers.
        photos: by the empty axes that each fills as far as its shape allows.
    """
    figure.draw_without_rendering()  # settles the layout, and with it the places of photos
    photos = {frame: _small(photo) for frame, photo in (photos or {}).items()}
    extra = "".join(_embedded(photo, figure, frame) for frame, photo in photos.items())
    out = io.StringIO()
    nothing: dict[str, Any] = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    figure.savefig(out, format="svg", metadata=nothing)
    svg = out.getvalue()
    svg = re.sub(r"<!--.*?-->", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    svg = re.sub(r">\s+<", "><", svg.strip()).replace("<g/>", "")
    svg = _own_ids(_in_tags(_smaller, svg).replace("</svg>", f"{extra}</svg>"))
    opening, rest = svg.split(">", 1)
    drawn = Drawing(f'{opening} role="img" style="{_ROOT}">\n<title>{html.escape(title)}</title>{rest}\n')
    drawn.figure, drawn.photos = figure, photos
    return drawn


def _small(image: Image.Image, longest: int = 320) -> Image.Image:
    small = ImageOps.exif_transpose(image).convert("RGB")
    small.thumbnail((longest, longest))
    return small


def _embedded(photo: Image.Image, figure: Figure, frame: Axes) -> str:
    """A photo as an SVG element in its frame."""
    data = io.BytesIO()
    photo.save(data, "JPEG", quality=85)
    uri = "data:image/jpeg;base64," + base64.b64encode(data.getvalue()).decode()
    (width, height), box = 72 * figure.get_size_inches(), frame.get_position()
    place = f'x="{box.x0 * width:.1f}" y="{(1 - box.y1) * height:.1f}"'
    size = f'width="{box.width * width:.1f}" height="{box.height * height:.1f}"'
    return f' <image {place} {size} preserveAspectRatio="xMidYMid meet" href="{uri}"/>\n'


def _in_tags(change: Callable[[str], str], svg: str) -> str:
    """Apply a change inside tags only, never to visible text."""
    return re.sub(r"<[^>]+>", lambda found: change(found[0]), svg)


def _smaller(tag: str) -> str:
    """Drop styles inherited from the page or root, and round coordinates to 0.01 points."""
    tag = re.sub(r"font-family: [^;\"]+(; )?", "", " ".join(tag.split()))
    tag = re.sub(r' transform="rotate\(-?0 [^"]+"', "", tag)
    return re.sub(r"\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}", tag.replace(_INK, "currentColor"))


def _own_ids(svg: str) -> str:
    """Drop unused ids; derive the others from the content, so that figures can share a page."""
    tags = " ".join(re.findall(r"<[^>]+>", svg))
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', tags))
    numbers = {name: index for index, name in enumerate(dict.fromkeys(re.findall(r' id="([^"]+)"', tags)))}
    reference = re.compile(r'( id="|url\(#|href="#)([^")]+)')

    def renamed(tag: str, stamp: str = "") -> str:
        tag = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", tag)
        return reference.sub(lambda found: f"{found[1]}f{stamp}-{numbers.get(found[2])}", tag)

    stamp = sha256(_in_tags(renamed, svg).encode()).hexdigest()[:8]
    return _in_tags(lambda tag: renamed(tag, stamp), svg)
