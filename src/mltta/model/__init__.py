"""A frozen CLIP-style model: images and texts in, unit features out."""
