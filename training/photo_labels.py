"""What labeled photos say of every noun: present, absent, weakly absent or unknown.

A photo's own labels hold. Names that its source annotates and does not give are absent. All other nouns are weakly
absent, except those that might hold unsaid: nouns that mean nearly the same as a label, are narrower than it, or are
in many everyday photos (person, sky, grass).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from training.labeled import Labeled
from training.meanings import meaning, name_of

ALIKE = 0.72  # cosine of two nouns in MiniLM's space from which one may hold where the other does
COMMON = 0.01  # share of captioned photos from which a noun is never assumed to be absent
DENIED = 0.8  # weight of an absence if a photo shows one of several exclusive classes
INCOMPLETE = 0.3  # weight of an absence if a photo has "all" its labels, which are few
Labels = NDArray[np.int8]
Weights = NDArray[np.float16]


def read(
    photos: Labeled, nouns: Sequence[str], similarity: NDArray[np.float32], captions: Labels, weak: float
) -> tuple[Labels, Weights]:
    """Labels (photos, nouns) as 1, 0 or -1, unknown, and the reliability of each.

    Args:
        similarity: (nouns, nouns) cosines of their meanings.
        captions: labels of captioned photos, which tell how common a noun is.
        weak: reliability of a weak absence.
    """
    position = {noun: i for i, noun in enumerate(nouns)}
    said = photos.labels(nouns)
    near = list(similarity > ALIKE)  # the nouns that may hold where each noun does
    for i, noun in enumerate(nouns):
        for broad in meaning(noun) - {noun}:
            if broad in position:
                near[position[broad]][i] = True  # where the broad one holds, the narrow one may
    seldom = (captions == 1).mean(0) < COMMON
    labels, certain = said, np.zeros(said.shape, np.float16)
    for row, own in enumerate(photos.facts):
        complete = own["source"] in photos.complete
        main = own["terms"] if complete else own["terms"][:1]
        held = [position[n] for term in main for n in (term, name_of(term)) if n in position]
        may = np.any([near[noun] for noun in held], axis=0) if held else np.zeros(len(nouns), bool)
        may[[position[n] for n in own["unknown"] if n in position]] = True
        certain[row, said[row] == 1] = 1
        certain[row, said[row] == 0] = INCOMPLETE if complete else DENIED
        weakly = (said[row] == -1) & ~may & seldom
        labels[row, weakly], certain[row, weakly] = 0, weak
    return labels, certain


def shares(labels: Labels) -> NDArray[np.float64]:
    """Probabilities of drawing each photo: by the square root of the rarity of its rarest label."""
    count = np.maximum((labels == 1).sum(0), 1)
    rarest = np.full(len(labels), len(labels))
    rows, nouns = np.nonzero(labels == 1)
    np.minimum.at(rarest, rows, count[nouns])
    weight = rarest**-0.5
    found: NDArray[np.float64] = weight / weight.sum()
    return found
