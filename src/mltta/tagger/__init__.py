"""The pipeline for people: a photo, a list, a folder in, labels out."""

from mltta.tagger.tagger import Tagger, Tags

__all__ = ["Tagger", "Tags"]
