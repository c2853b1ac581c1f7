"""Tagging over HTTP: an API, a page that uses it, and a client."""
