"""Caches of the tests stay out of the user's own, and are shared by the whole run."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ.setdefault("MLTTA_CACHE", str(Path(tempfile.gettempdir()) / f"mltta-tests-{os.getuid()}"))
