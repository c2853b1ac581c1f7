"""mltta: tag images with many labels at once, adapting a frozen CLIP-style model to every single image.

>>> import mltta
>>> tagger = mltta.Tagger("ViT-B/16", labels=["dog", "sofa", "person"])   # doctest: +SKIP
>>> tagger("photo.jpg").present                                           # doctest: +SKIP
['dog', 'sofa']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mltta.captions.store import CaptionBase
    from mltta.labels import LabelSet
    from mltta.methods import create_method, list_methods
    from mltta.model.backbone import Backbone, load_backbone
    from mltta.tagger import Tagger, Tags

__version__ = "0.1.0"

# Imported when first used: torch and open_clip take seconds, and `mltta --help` needs neither.
_HOMES = {
    "Backbone": "mltta.model.backbone",
    "load_backbone": "mltta.model.backbone",
    "CaptionBase": "mltta.captions.store",
    "LabelSet": "mltta.labels",
    "list_methods": "mltta.methods",
    "create_method": "mltta.methods",
    "Tagger": "mltta.tagger",
    "Tags": "mltta.tagger",
}

__all__ = [
    "Backbone",
    "CaptionBase",
    "LabelSet",
    "Tagger",
    "Tags",
    "__version__",
    "create_method",
    "list_methods",
    "load_backbone",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'mltta' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
