"""What is kept of a collection of photos: features, scores, corrections; searched and exported without the photos."""

from mltta.library.index import Library as Library
