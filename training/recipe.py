"""All settings of a run, and their command-line syntax."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

# rows and columns of composed images; each size uses those that divide its map evenly
LAYOUTS = ((1, 2), (2, 1), (2, 2), (2, 2), (3, 3), (4, 4))


def _setting(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Recipe:
    """The settings; the defaults are the recipe of the included model."""

    seed: int = _setting(0, "random seed of the joint steps")
    start: int = _setting(0, "seed of initial weights and text phase; must match between runs to be averaged")
    base: str = _setting("", "folder of a model to continue from, instead of pretrained tower and text phase")
    blocks: int = _setting(10, "blocks kept of the pretrained image tower")
    text_width: int = _setting(192, "width of the text tower")
    text_layers: int = _setting(6, "layers of the text tower")

    text_steps: int = _setting(2400, "steps of the first phase: text tower only")
    steps: int = _setting(3000, "steps of the second phase: both towers")
    side: int = _setting(196, "size of whole images, and of the parts of composed ones")
    batch: int = _setting(448, "images of that size per joint step, without composed ones")
    text_batch: int = _setting(2048, "sentences per step of the first phase")
    imagenet_share: float = _setting(0.04, "fraction of ImageNet photos in a batch")
    labeled_share: float = _setting(0.72, "fraction of labeled photos in a batch; the others are captioned")
    pairs: float = _setting(0.25, "composed pairs of images of that size, per image")

    lr: float = _setting(5e-4, "learning rate of text tower and projection")
    lr_image: float = _setting(1e-4, "learning rate of the image tower")
    lr_text_alone: float = _setting(1e-3, "learning rate of the first phase")
    decay: float = _setting(0.05, "weight decay of matrices")
    layer_decay: float = _setting(0.85, "factor of `lr_image` from one block to the block before it")
    warmup: float = _setting(0.05, "fraction of steps for learning-rate warm-up")
    ema: float = _setting(0.998, "decay of the moving average of the weights")

    smallest: float = _setting(0.35, "minimum fraction of an image that a crop covers")
    whole: float = _setting(0.2, "probability of using the whole image, at that size")

    large: float = _setting(
        160.0, "pixels of large images per step, in units of 196 x 196; the same again for composed ones"
    )
    sizes: tuple[int, ...] = _setting(
        (224, 280, 336), "sizes of large and composed images; one is chosen per step"
    )
    large_smallest: float = _setting(0.5, "minimum fraction of an image that a large crop covers")
    large_whole: float = _setting(0.5, "probability of using the whole image among the large ones")
    composed_imagenet: float = _setting(0.05, "fraction of ImageNet photos in composed images")
    composed_labeled: float = _setting(0.7, "fraction of labeled photos in composed images")
    layouts: tuple[tuple[int, int], ...] = _setting(LAYOUTS, "layouts of composed images to choose from")

    relabel: float = _setting(0.5, "progress at which the model adds labels that photos lack; 0: never")

    w_contrastive: float = _setting(1.0, "weight of the contrastive loss between images and captions")
    softness: float = _setting(0.3, "fraction of the contrastive target for captions of similar meaning")
    soft_temperature: float = _setting(0.1, "temperature of that similarity")
    w_distil: float = _setting(1.5, "weight of distillation from the classifier on whole images")
    verdict: float = _setting(0.25, "fraction of confident windows in the verdict on the whole image")
    w_text: float = _setting(2.0, "weight of distillation from MiniLM")
    w_noun: float = _setting(1.0, "weight of the noun loss with one vector")
    w_rank: float = _setting(0.3, "weight of the noun ranking loss with one vector")
    w_sentence: float = _setting(0.3, "weight of the loss on label sentences")
    w_local: float = _setting(1.0, "weight of distillation from the classifier's windows")
    w_placed: float = _setting(0.5, "weight of the noun loss in windows with a confident classifier")
    w_somewhere: float = _setting(0.5, "weight of the noun loss over all windows")
    w_answer: float = _setting(0.5, "weight of the loss on sampled label lists with local views")
    even: float = _setting(0.3, "weight in that loss of images that show nothing on the list")
    longest_list: int = _setting(80, "maximum length of sampled label lists; the minimum is a quarter")
    weak: float = _setting(0.5, "weight of a noun's absence from the captions")
    passed_over: float = _setting(0.5, "fraction of that weight for objects that captions rarely mention")
    gamma: float = _setting(2.0, "focusing exponent for easy negatives")
    margin: float = _setting(0.02, "probability below which a negative costs nothing")
    balance: float = _setting(0.5, "exponent for down-weighting frequent nouns")

    def changed(self, settings: str) -> Recipe:
        """Change settings, written as "lr=1e-3,steps=100"; numbers of a tuple are joined by "/".

        >>> Recipe().changed("steps=10,sizes=64/96").sizes
        (64, 96)
        """
        known = {f.name: f.default for f in fields(self)}
        found: dict[str, Any] = {}
        for part in filter(None, settings.split(",")):
            name, equals, text = part.partition("=")
            if name not in known or not equals:
                raise ValueError(f"{part!r} is not a setting; choose from {', '.join(known)}")
            found[name] = _value(known[name], text)
        return replace(self, **found)


def _value(default: Any, text: str) -> Any:
    """Parse a setting's value with the type of its default."""
    if not isinstance(default, tuple):
        return type(default)(text)
    if isinstance(default[0], tuple):  # 2x2/1x2
        return tuple(tuple(int(n) for n in part.split("x")) for part in text.split("/"))
    return tuple(type(default[0])(part) for part in text.split("/"))


def named(text: str, base: Recipe) -> tuple[str, Recipe]:
    """Parse a run's name and recipe, written as "name" or "name:lr=1e-3,steps=100"."""
    name, _, settings = text.partition(":")
    return name, base.changed(settings)


def describe() -> str:
    """All settings with their defaults, one per line."""
    return "\n".join(f"{f.name:18} {f.default!s:24} {f.metadata['help']}" for f in fields(Recipe))
