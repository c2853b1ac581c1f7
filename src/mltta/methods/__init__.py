"""Methods, one file each. Importing this package registers them all."""

from mltta.methods import clip, ml_tta, tpt
from mltta.methods.base import Config, Method, Problem, list_methods, method_class, register
from mltta.methods.create import create_method

__all__ = [
    "Config",
    "Method",
    "Problem",
    "clip",
    "create_method",
    "list_methods",
    "method_class",
    "ml_tta",
    "register",
    "tpt",
]
