"""Memory does not grow with the number of images; benchmarks/million.py says so of a million."""

from __future__ import annotations

import re

from benchmarks import million


def test_twenty_thousand_images_pass_in_flat_memory(tmp_path, capsys):
    growth = million.measure(20_000, tmp_path)
    said = capsys.readouterr().out
    assert re.findall(r"after ([\d,]+) images", said) == ["10,240", "20,000"]
    assert growth < 4, said
