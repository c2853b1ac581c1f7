"""Only speed: everything works without this room, and gives the same numbers (docs/speed.md says how near)."""
