"""Zero-shot CLIP: the clean view is compared with the labels' prompts, without adaptation."""

from __future__ import annotations

from mltta.arrays import Array
from mltta.methods.base import Method, register
from mltta.model.encoded import Encoded


@register("clip", "zero-shot CLIP without adaptation: one view, the fastest")
class Clip(Method):
    """Cosine of the clean view with each label's prompt (or the mean of its prompts), at the model's temperature."""

    def branches(self, encoded: Encoded) -> dict[str, Array]:
        clean = encoded.features(self.needs[0])  # (B, 1, D)
        return {"view": self.logits(clean, self.text.features)[:, 0]}
