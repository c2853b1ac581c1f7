"""The pipeline behind a door: an HTTP API, a page that uses it, and a client."""
