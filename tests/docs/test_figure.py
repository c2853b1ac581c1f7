"""The figure of the idea page computes in JavaScript what mltta.objectives computes."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from mltta.objectives import bind_labels, entropy

SCRIPT = Path(__file__).parents[2] / "docs" / "js" / "bound-entropy.js"
ASK = """
const f = require(process.argv[1]);
const rows = JSON.parse(require("fs").readFileSync(0));
console.log(JSON.stringify(rows.map(([z, k]) => ({
  entropy: f.entropy(z), bound: f.bindLabels(z, k), plain: f.entropyGradient(z), tied: f.boundGradient(z, k),
  after: f.softmax(f.step(z, f.boundGradient(z, k), 2)),
}))));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
def test_the_figure_and_the_objectives_give_the_same_numbers():
    torch.manual_seed(0)
    rows = [((3 * torch.randn(size)).tolist(), k) for size in (2, 4, 7) for k in range(size + 2)]
    rows += [([1.0, 1.0, 0.5, 0.5], k) for k in range(5)] + [([800.0, 0.0, -800.0], 2)]
    done = subprocess.run(
        ["node", "-e", ASK, str(SCRIPT)], input=json.dumps(rows), capture_output=True, text=True, check=True
    )
    for (values, k), said in zip(rows, json.loads(done.stdout), strict=True):
        logits = torch.tensor(values, dtype=torch.float64, requires_grad=True)
        bound = bind_labels(logits, torch.tensor(k))
        plain = torch.autograd.grad(entropy(logits), logits)[0]
        tied = torch.autograd.grad(entropy(bound), logits)[0]
        want = {
            "entropy": entropy(logits).item(),
            "bound": bound.tolist(),
            "plain": plain.tolist(),
            "tied": tied.tolist(),
            "after": (logits - 2 * tied).softmax(-1).tolist(),
        }
        for name, value in want.items():
            assert said[name] == pytest.approx(value, abs=1e-9), f"{name} of {values}, k = {k}"
