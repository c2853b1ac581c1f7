"""Every promise of SECURITY.md names a test that exists; what is built comes from fixed places."""

from __future__ import annotations

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from tests import sbom

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_every_promise_names_tests_that_exist():
    table = (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## Promises and their tests")[2]
    rows = [line for line in table.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 15
    for row in rows:
        files = re.findall(r"`(tests/[\w/]+\.py)`", row)
        assert files, row
        for file in files:
            content = (ROOT / file).read_text(encoding="utf-8")
            assert "def test_" in content or file == "tests/release.py", file


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_workflows_use_actions_by_commit_and_may_only_read_by_default(workflow):
    text = workflow.read_text(encoding="utf-8")
    used = re.findall(r"uses: (\S+)(.*)", text)
    assert used
    for action, version in used:
        assert re.fullmatch(r"[\w.-]+(/[\w.-]+)+@[0-9a-f]{40}", action), action
        assert re.fullmatch(r" # v\d+(\.\d+)*", version), version
    assert yaml.safe_load(text)["permissions"] == {"contents": "read"}


def test_the_image_installs_files_with_known_hashes():
    lines = (ROOT / "deploy" / "requirements.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert len(lines) > 15
    for line in lines:
        assert re.fullmatch(r"[\w.-]+==[\w.+!]+( --hash=sha256:[0-9a-f]{64})+", line), line
    assert "--require-hashes -r requirements.txt" in (ROOT / "deploy" / "Dockerfile").read_text()


@pytest.mark.skipif(find_spec("torch") is None, reason="the light environment does not install mltta itself")
def test_the_bill_of_materials_lists_libraries_and_what_the_model_was_trained_on():
    bill = sbom.bill()
    assert json.loads(json.dumps(bill)) == sbom.bill()
    *libraries, model = bill["components"]
    assert {"numpy", "onnxruntime", "pillow", "safetensors"} <= {one["name"] for one in libraries}
    for one in libraries:
        assert one["licenses"][0]["license"], one["name"]
        assert one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}"
    parts = {one["name"].partition(",")[0]: one for one in model["components"]}
    assert parts["Flickr8k"]["licenses"] == [
        {"license": {"name": "images for research use; none is redistributed here"}}
    ]
    assert parts["all-MiniLM-L6-v2 sentence encoder"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert len(parts["open_clip_model.safetensors"]["hashes"][0]["content"]) == 64
