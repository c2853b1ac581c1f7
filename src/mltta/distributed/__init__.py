"""Tagging and evaluation on many machines: Ray distributes shards of photos to workers, each with its own tagger.

from mltta import Tagger
from mltta.distributed import tag

tag(Tagger(labels="coco"), ["s3://bucket/photos"], "tags")
"""

from __future__ import annotations

from mltta.distributed.cluster import Size
from mltta.distributed.measure_shards import measuring
from mltta.distributed.tag_shards import tag

__all__ = ["Size", "measuring", "tag"]
