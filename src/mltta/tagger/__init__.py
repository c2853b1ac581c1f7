"""The high-level API: tag a photo, a list or a folder."""

from mltta.tagger.tagger import Tagger, Tags

__all__ = ["Tagger", "Tags"]
