"""The pipeline from images to scores: read, decode, render views, encode (with a cache), method, decision."""
