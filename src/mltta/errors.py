"""Errors that speak to the user: what was wrong, which file or label, what to do."""

from __future__ import annotations


class MlttaError(Exception):
    """Base of every error this library raises on purpose."""


class ImageError(MlttaError):
    """An image that cannot be read, and why."""


class LabelError(MlttaError):
    """A label list that cannot be used: empty, duplicated, too long, unreadable."""


class WeightsError(MlttaError):
    """Model weights that are missing, unreadable or do not fit the architecture."""


class CaptionError(MlttaError):
    """A caption base that is missing, damaged or built for another backbone."""


class HubError(MlttaError):
    """Something that could not be fetched from the hub or sent to it."""


class EngineError(MlttaError):
    """A language model that cannot be opened or reached, or that answers rubbish."""


class ConfigError(MlttaError):
    """A setting that makes no sense, or a method that lacks what it needs."""


class NeedsTorch(ConfigError):
    """What the light install lacks."""


def needs_torch(what: str) -> NeedsTorch:
    """The error of something that only runs on PyTorch, where that is not installed."""
    return NeedsTorch(f"{what} needs PyTorch: pip install 'mltta[torch]'")


class DatasetError(MlttaError):
    """A dataset that is not where or what it should be, and what to do about it."""
