"""The one way from images to scores: read, decode, views, encode (with a cache), method, decision."""
