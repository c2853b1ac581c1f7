"""Methods, one per file: `method_class` imports a method's file on first use."""

from mltta.methods.base import Method, OnlineMethod, Problem, State, Teacher, TransductiveMethod
from mltta.methods.config import Config, TuningConfig, ViewConfig, setting
from mltta.methods.create import create_method
from mltta.methods.registry import list_methods, method_class, register

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
    "method_class",
    "register",
    "setting",
]
