"""mltta: tag images with many labels at once, adapting a frozen CLIP-style model to every single image.

>>> import mltta
>>> tagger = mltta.Tagger("ViT-B/16", labels=["dog", "sofa", "person"])   # doctest: +SKIP
>>> tagger("photo.jpg").present                                           # doctest: +SKIP
['dog', 'sofa']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.3.0"

#: every public name by its home, imported when first used: torch takes seconds, and `mltta --help` does not need it
_HOMES = {
    "captions.generate.sampling": "Cooccurrence",
    "captions.store": "CaptionBase default_captions",
    "data": "Dataset list_datasets load_dataset",
    "decision": "Decision Presence",
    "errors": "CaptionError ConfigError DatasetError EngineError "
    "HubError ImageError LabelError MlttaError WeightsError",
    "evaluation.evaluate": "Evaluation evaluate",
    "evaluation.recipes": "Recipe",
    "evaluation.results": "Result",
    "evaluation.summary": "Summary",
    "images.decode": "load_image",
    "images.specs": "ViewSpec",
    "labels": "LabelSet",
    "methods": "Config Method OnlineMethod TransductiveMethod "
    "TuningConfig ViewConfig create_method list_methods register",
    "methods.variations": "generate_variations",
    "model.backbone": "Backbone",
    "model.encoded": "Encoded",
    "model.load": "load_backbone",
    "model.maple": "with_prompts",
    "model.names": "list_models",
    "session.execution": "Execution",
    "session.features": "encode_images",
    "tagger": "Tagger Tags",
    "tagger.zero_shot": "ZeroShotPipeline",
}
_HOME_OF = {name: f"mltta.{home}" for home, names in _HOMES.items() for name in names.split()}
__all__ = ["__version__", *_HOME_OF]

if TYPE_CHECKING:  # the same names, for type checkers and editors
    # isort: off
    from mltta.captions.generate.sampling import Cooccurrence as Cooccurrence
    from mltta.captions.store import CaptionBase as CaptionBase, default_captions as default_captions
    from mltta.data import Dataset as Dataset, list_datasets as list_datasets, load_dataset as load_dataset
    from mltta.decision import Decision as Decision, Presence as Presence
    from mltta.errors import CaptionError as CaptionError, ConfigError as ConfigError
    from mltta.errors import DatasetError as DatasetError, EngineError as EngineError, HubError as HubError
    from mltta.errors import ImageError as ImageError, LabelError as LabelError, MlttaError as MlttaError
    from mltta.errors import WeightsError as WeightsError
    from mltta.evaluation.evaluate import Evaluation as Evaluation, evaluate as evaluate
    from mltta.evaluation.recipes import Recipe as Recipe
    from mltta.evaluation.results import Result as Result
    from mltta.evaluation.summary import Summary as Summary
    from mltta.images.decode import load_image as load_image
    from mltta.images.specs import ViewSpec as ViewSpec
    from mltta.labels import LabelSet as LabelSet
    from mltta.methods import Config as Config, Method as Method, OnlineMethod as OnlineMethod
    from mltta.methods import TransductiveMethod as TransductiveMethod, TuningConfig as TuningConfig
    from mltta.methods import ViewConfig as ViewConfig, create_method as create_method
    from mltta.methods import list_methods as list_methods, register as register
    from mltta.methods.variations import generate_variations as generate_variations
    from mltta.model.backbone import Backbone as Backbone
    from mltta.model.encoded import Encoded as Encoded
    from mltta.model.load import load_backbone as load_backbone
    from mltta.model.maple import with_prompts as with_prompts
    from mltta.model.names import list_models as list_models
    from mltta.session.execution import Execution as Execution
    from mltta.session.features import encode_images as encode_images
    from mltta.tagger import Tagger as Tagger, Tags as Tags
    from mltta.tagger.zero_shot import ZeroShotPipeline as ZeroShotPipeline
    # isort: on


def __getattr__(name: str) -> object:
    if name in _HOME_OF:
        return getattr(import_module(_HOME_OF[name]), name)
    raise AttributeError(f"module 'mltta' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
