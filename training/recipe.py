"""Every setting of a run, and how runs are written on the command line."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

# rows and columns of composed pictures; a size takes those that cut its map evenly
LAYOUTS = ((1, 2), (2, 1), (2, 2), (2, 2), (3, 3), (4, 4))


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Recipe:
    """The settings; their defaults are the recipe that ships."""

    seed: int = _setting(0, "of what the joint steps draw")
    start: int = _setting(0, "seed of the start: first weights and text phase; runs to be averaged share it")
    base: str = _setting("", "folder of a model to go on from, in the place of classifier and text phase")
    text_width: int = _setting(256, "width of the text tower")
    text_layers: int = _setting(6, "layers of the text tower")

    text_steps: int = _setting(1200, "steps of the text tower alone, first")
    steps: int = _setting(900, "steps of both towers together")
    match_steps: int = _setting(0, "steps of the image tower alone, last, on pictures that nobody took")
    side: int = _setting(224, "of pictures seen as one vector, and of the parts of composed ones")
    batch: int = _setting(448, "images of a joint step at that side, composed ones not counted")
    text_batch: int = _setting(2048, "sentences of a step of the text tower alone")
    imagenet_share: float = _setting(0.35, "share of ImageNet photographs in a batch")
    pairs: float = _setting(0.25, "pictures of two images at that side, per image")

    lr: float = _setting(5e-4, "learning rate of text tower and projection")
    lr_image: float = _setting(1e-4, "learning rate of the image tower")
    lr_text_alone: float = _setting(1e-3, "learning rate of the text tower alone")
    decay: float = _setting(0.05, "weight decay of matrices")
    pull: float = _setting(0.0, "decay of the image tower towards the classifier's weights")
    frozen: int = _setting(0, "first blocks of the image tower that stay as the classifier's")
    warmup: float = _setting(0.05, "share of the steps in which the rate rises")
    ema: float = _setting(0.998, "the weights that are saved are an average of such memory")

    smallest: float = _setting(0.35, "least share of an image that a crop covers")
    whole: float = _setting(0.2, "probability of a whole image, at that side")

    large: float = _setting(
        160.0, "pixels of the large pictures of a step, in units of 224 x 224; as many are composed"
    )
    sizes: tuple[int, ...] = _setting(
        (320, 384, 512), "sides of the large and composed pictures; a step draws one"
    )
    large_smallest: float = _setting(0.5, "least share of an image that a large crop covers")
    large_whole: float = _setting(0.5, "probability of a whole image among the large ones")
    composed_imagenet: float = _setting(0.5, "share of ImageNet photographs in composed pictures")
    layouts: tuple[tuple[int, int], ...] = _setting(LAYOUTS, "of composed pictures, drawn")

    match_batch: int = _setting(256, "pictures of such a step at that side")
    match_large: float = _setting(96.0, "pixels of its large ones, in units of 224 x 224")
    match_smallest: float = _setting(0.25, "least share of an image that a crop covers in it")
    keep_size: int = _setting(
        0, "side at which windows were seen when it began, where that is larger; 0: their own"
    )
    lr_match: float = _setting(1e-4, "its learning rate")

    w_contrastive: float = _setting(1.0, "weight of images against captions")
    softness: float = _setting(0.3, "share of the target for captions of nearly the same meaning")
    soft_temperature: float = _setting(0.1, "what nearly means")
    w_distil: float = _setting(1.5, "weight of following the classifier on the whole picture")
    verdict: float = _setting(0.25, "share of its confident windows in what it says of the whole")
    w_match: float = _setting(1.0, "weight of following the classifier on pictures that nobody took")
    w_keep: float = _setting(1.0, "weight, on them, of saying of everyday words what was said before")
    w_text: float = _setting(2.0, "weight of following MiniLM")
    w_noun: float = _setting(1.0, "weight of nouns by one vector")
    w_rank: float = _setting(0.3, "weight of nouns against each other by one vector")
    w_sentence: float = _setting(0.3, "weight of sentences of labels")
    w_local: float = _setting(1.0, "weight of windows following the classifier's windows")
    w_placed: float = _setting(0.5, "weight of nouns in windows of which the classifier is sure")
    w_somewhere: float = _setting(0.5, "weight of nouns somewhere among the windows")
    w_answer: float = _setting(0.5, "weight of the answer to drawn label lists by local views")
    even: float = _setting(0.3, "weight, in it, of pictures that show nothing on the list")
    longest_list: int = _setting(80, "labels of the longest list drawn; the shortest has a quarter")
    weak: float = _setting(0.5, "how far a noun's absence from the captions is believed")
    passed_over: float = _setting(0.5, "share of that for things that captions pass over")
    gamma: float = _setting(2.0, "how fast easy negatives fade")
    margin: float = _setting(0.02, "probability under which a negative costs nothing")
    balance: float = _setting(0.5, "exponent with which frequent nouns are weighted down")

    def changed(self, settings: str) -> Recipe:
        """With other values, written as "lr=1e-3,steps=100"; numbers of a tuple are joined by "/".

        >>> Recipe().changed("steps=10,sizes=64/96").sizes
        (64, 96)
        """
        known = {f.name: f.default for f in fields(self)}
        found: dict[str, Any] = {}
        for part in filter(None, settings.split(",")):
            name, equals, text = part.partition("=")
            if name not in known or not equals:
                raise ValueError(f"{part!r} is not a setting; there are: {', '.join(known)}")
            found[name] = _value(known[name], text)
        return replace(self, **found)


def _value(default: Any, text: str) -> Any:
    """A setting's value, of the kind that its default is of."""
    if not isinstance(default, tuple):
        return type(default)(text)
    if isinstance(default[0], tuple):  # 2x2/1x2
        return tuple(tuple(int(n) for n in part.split("x")) for part in text.split("/"))
    return tuple(type(default[0])(part) for part in text.split("/"))


def named(text: str, base: Recipe) -> tuple[str, Recipe]:
    """A run's name and recipe, written as "name" or "name:lr=1e-3,steps=100"."""
    name, _, settings = text.partition(":")
    return name, base.changed(settings)


def describe() -> str:
    """All settings with their defaults, one a line."""
    return "\n".join(f"{f.name:18} {f.default!s:24} {f.metadata['help']}" for f in fields(Recipe))
