"""Tagging and measuring on many machines: Ray spreads shards of photos over workers, each with a tagger of its own.

from mltta import Tagger
from mltta.distributed import tag

tag(Tagger(labels="coco"), ["s3://bucket/photos"], "tags")
"""

from __future__ import annotations

from mltta.distributed.cluster import Size
from mltta.distributed.measure_shards import measuring
from mltta.distributed.tag_shards import tag

__all__ = ["Size", "measuring", "tag"]
