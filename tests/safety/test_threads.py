"""Many threads, and any number of torch's own: the same bits."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from mltta import Tagger
from mltta.model.passes import side_by_side
from tests.safety.many import ROOT
from tests.safety.world import LABELS, backbone, captions, photo


@pytest.mark.parametrize("method", ["tda", "dmn", "ml-tta"])
def test_eight_threads_share_a_tagger_and_every_call_is_as_if_it_were_alone(method):
    tagger = Tagger(backbone(), LABELS, method, captions=captions(), views=4)
    streams = [[photo(seed + i) for i in range(4)] for seed in range(24)]
    alone = [list(tagger.stream(images)) for images in streams]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda images: list(tagger.stream(images)), streams))
    assert together == alone
    assert alone[0] != alone[1]


def test_each_thread_of_the_pool_lets_torch_use_itself_only():
    before = torch.get_num_threads()
    assert {side_by_side().submit(torch.get_num_threads).result() for _ in range(16)} == {1}
    assert torch.get_num_threads() == before


BITS = """
import hashlib, sys, torch
torch.set_num_threads(int(sys.argv[1]))
from mltta import LabelSet, Tagger, load_backbone
mini = load_backbone("mini", device="cpu")
print(mini.encode_texts(["a photo of a dog on a sofa", "two cats beside a bus"]).numpy().tobytes().hex()[:4000])
from tests.distributed.scene import tagger
from tests.safety.world import photo
print([tags.top() for tags in tagger().stream([photo(seed) for seed in range(8)])])
long = [f"thing number {i} beside a sofa" for i in range(300)]
print(hashlib.sha256(mini.encode_labels(LabelSet.of(long)).features.numpy().tobytes()).hexdigest())
for method in ("clip", "ml-tta", "tda"):
    tagger = Tagger(mini, ["cat", "dog", "sofa", "person"], method, **({} if method == "clip" else {"views": 8}))
    print(method, [(x["label"], x["score"].hex()) for x in tagger("examples/photos/cat.jpg")])
"""


def test_scores_have_the_same_bits_with_one_two_and_four_threads_of_torch():
    said = {}
    for threads in ("1", "2", "4"):
        command = [sys.executable, "-c", BITS, threads]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
        said[threads] = done.stdout
    assert "dog" in said["1"]
    assert said["1"] == said["2"] == said["4"]
