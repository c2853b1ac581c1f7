"""Tagging over HTTP: an API, a web page for it, and a client."""
