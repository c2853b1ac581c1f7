"""What tagging writes: tags in every format, a gallery, keywords, pictures."""
