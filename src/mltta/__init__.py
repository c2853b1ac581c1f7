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
    from mltta.captions.generate.sampling import Cooccurrence
    from mltta.captions.store import CaptionBase, default_captions
    from mltta.data import Dataset, list_datasets, load_dataset
    from mltta.decision import Decision, Presence
    from mltta.errors import (
        CaptionError,
        ConfigError,
        DatasetError,
        EngineError,
        HubError,
        ImageError,
        LabelError,
        MlttaError,
        WeightsError,
    )
    from mltta.evaluation.evaluate import Evaluation, evaluate
    from mltta.evaluation.recipes import Recipe
    from mltta.evaluation.results import Result
    from mltta.evaluation.summary import Summary
    from mltta.images.decode import load_image
    from mltta.images.specs import ViewSpec
    from mltta.labels import LabelSet
    from mltta.methods import (
        Config,
        Method,
        OnlineMethod,
        TransductiveMethod,
        TuningConfig,
        ViewConfig,
        create_method,
        list_methods,
        register,
    )
    from mltta.model.backbone import Backbone
    from mltta.model.encoded import Encoded
    from mltta.model.load import load_backbone
    from mltta.model.maple import with_prompts
    from mltta.model.names import list_models
    from mltta.model.variations import generate_variations
    from mltta.session.execution import Execution
    from mltta.session.features import encode_images
    from mltta.tagger import Tagger, Tags
    from mltta.tagger.zero_shot import ZeroShotPipeline

__version__ = "0.2.0"

# Imported when first used: torch and open_clip take seconds, and `mltta --help` needs neither.
_HOMES = {
    "mltta.captions.store": ("CaptionBase", "default_captions"),
    "mltta.data": ("Dataset", "list_datasets", "load_dataset"),
    "mltta.captions.generate.sampling": ("Cooccurrence",),
    "mltta.decision": ("Decision", "Presence"),
    "mltta.errors": (
        "CaptionError",
        "ConfigError",
        "DatasetError",
        "EngineError",
        "HubError",
        "ImageError",
        "LabelError",
        "MlttaError",
        "WeightsError",
    ),
    "mltta.evaluation.evaluate": ("Evaluation", "evaluate"),
    "mltta.evaluation.recipes": ("Recipe",),
    "mltta.evaluation.results": ("Result",),
    "mltta.evaluation.summary": ("Summary",),
    "mltta.images.decode": ("load_image",),
    "mltta.images.views": ("ViewSpec",),
    "mltta.labels": ("LabelSet",),
    "mltta.methods": (
        "Config",
        "Method",
        "OnlineMethod",
        "TransductiveMethod",
        "TuningConfig",
        "ViewConfig",
        "create_method",
        "list_methods",
        "register",
    ),
    "mltta.model.backbone": ("Backbone",),
    "mltta.model.encoded": ("Encoded",),
    "mltta.model.load": ("load_backbone",),
    "mltta.model.maple": ("with_prompts",),
    "mltta.model.names": ("list_models",),
    "mltta.model.variations": ("generate_variations",),
    "mltta.session.execution": ("Execution",),
    "mltta.session.features": ("encode_images",),
    "mltta.tagger": ("Tagger", "Tags"),
    "mltta.tagger.zero_shot": ("ZeroShotPipeline",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Backbone",
    "CaptionBase",
    "CaptionError",
    "Config",
    "ConfigError",
    "Cooccurrence",
    "Dataset",
    "DatasetError",
    "Decision",
    "Encoded",
    "EngineError",
    "Evaluation",
    "Execution",
    "HubError",
    "ImageError",
    "LabelError",
    "LabelSet",
    "Method",
    "MlttaError",
    "OnlineMethod",
    "Presence",
    "Recipe",
    "Result",
    "Summary",
    "Tagger",
    "Tags",
    "TransductiveMethod",
    "TuningConfig",
    "ViewConfig",
    "ViewSpec",
    "WeightsError",
    "ZeroShotPipeline",
    "__version__",
    "create_method",
    "default_captions",
    "encode_images",
    "evaluate",
    "generate_variations",
    "list_datasets",
    "list_methods",
    "list_models",
    "load_backbone",
    "load_dataset",
    "load_image",
    "register",
    "with_prompts",
]


def __getattr__(name: str) -> object:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'mltta' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
