"""Output of tagging: tags in every format, a gallery, keywords and pictures."""
