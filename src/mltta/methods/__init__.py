"""Methods, one file each. Importing this package registers every one that lies in it."""

from importlib import import_module
from pkgutil import iter_modules

from mltta.methods.base import (
    Method,
    OnlineMethod,
    Problem,
    State,
    Teacher,
    TransductiveMethod,
    list_methods,
    method_class,
    register,
)
from mltta.methods.config import Config, TuningConfig, ViewConfig
from mltta.methods.create import create_method, make_teacher

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")

__all__ = [
    "Config",
    "Method",
    "OnlineMethod",
    "Problem",
    "State",
    "Teacher",
    "TransductiveMethod",
    "TuningConfig",
    "ViewConfig",
    "create_method",
    "list_methods",
    "make_teacher",
    "method_class",
    "register",
]
