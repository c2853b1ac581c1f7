"""Images: safe decoding and deterministic views."""
