"""Files: written whole or not at all, read without running code; and the hub."""
