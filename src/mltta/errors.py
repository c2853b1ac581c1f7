"""Errors for users: what is wrong, which file or label, what to do."""

from __future__ import annotations


class MlttaError(Exception):
    """Base class of all errors that mltta raises deliberately."""


class ImageError(MlttaError):
    """An image cannot be read."""


class LabelError(MlttaError):
    """A label list is empty, too long, unreadable or contains duplicates."""


class WeightsError(MlttaError):
    """Model weights are missing, unreadable or do not fit the architecture."""


class CaptionError(MlttaError):
    """A caption base is missing, damaged or built for another backbone."""


class HubError(MlttaError):
    """A download from or an upload to the Hugging Face Hub failed."""


class EngineError(MlttaError):
    """A language model cannot be loaded or reached, or gives invalid answers."""


class ConfigError(MlttaError):
    """A setting is invalid, or a method lacks something it requires."""


class DatasetError(MlttaError):
    """A dataset is missing, incomplete or invalid."""
