"""The pipeline for people: a photo, a list, a folder in, labels out."""

from mltta.tagger.tagger import Tagger
from mltta.tagger.tags import Tags

__all__ = ["Tagger", "Tags"]
