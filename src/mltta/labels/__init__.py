"""Labels: their names, their texts in prompts, and their synonyms."""

from mltta.labels.known import each_alone, with_known_words
from mltta.labels.label_files import read_label_text
from mltta.labels.sets import BUILT_IN, LabelSet, LabelSource

__all__ = ["BUILT_IN", "LabelSet", "LabelSource", "each_alone", "read_label_text", "with_known_words"]
