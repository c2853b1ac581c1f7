"""Methods, one file each. Importing this package registers them all."""

from mltta.methods import clip, dmn, ml_tta, rlcf, tda, tpt
from mltta.methods.base import (
    Config,
    Method,
    OnlineMethod,
    Problem,
    State,
    Teacher,
    list_methods,
    method_class,
    register,
)
from mltta.methods.create import create_method, make_teacher

__all__ = [
    "Config",
    "Method",
    "OnlineMethod",
    "Problem",
    "State",
    "Teacher",
    "clip",
    "create_method",
    "dmn",
    "list_methods",
    "make_teacher",
    "method_class",
    "ml_tta",
    "register",
    "rlcf",
    "tda",
    "tpt",
]
