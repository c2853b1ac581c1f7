"""Files of learned prompts: every layout loads to the same numbers, nothing in a file runs, misfits are named."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch.optim.lr_scheduler import CosineAnnealingLR, LRScheduler

from mltta import LabelSet, create_method
from mltta.errors import ConfigError, WeightsError
from mltta.images.specs import ViewSpec
from mltta.model.encoded import Encoded
from mltta.model.learned_prompts import CoOp, MaPLe, load_prompts, save_prompts
from mltta.model.maple import with_prompts
from tests import golden_data as golden
from tests.cli.test_cli import mltta
from tests.model.prompted import LABELS, Plain, coop, coop_of, maple, maple_state, tiny


class Warmup(LRScheduler):
    """As CoOp's training code has one: its state holds another scheduler, and through it the optimizer."""

    def __init__(self, optimizer):
        self.successor = CosineAnnealingLR(optimizer, 50)
        super().__init__(optimizer)

    def get_lr(self):
        return [1e-5 for _ in self.base_lrs]


def released(state: dict[str, torch.Tensor], path) -> None:
    """Write a checkpoint as the released training code does, optimizer and schedulers included."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], lr=0.002, momentum=0.9)
    parameter.grad = torch.ones(2)
    optimizer.step()
    rest = {
        "optimizer": optimizer.state_dict(),
        "scheduler": Warmup(optimizer).state_dict(),
        "val_result": None,
    }
    torch.save({"state_dict": OrderedDict(state), "epoch": 50, **rest}, path)


@pytest.mark.parametrize("tokens", [1, 4, 16])
def test_coop_loads_from_the_released_layout_and_from_bare_tensors_whatever_its_length(tmp_path, tokens):
    context = coop_of(tokens).context
    prefix, suffix = torch.zeros(3, 1, 64), torch.zeros(3, 76 - tokens, 64)
    released({"ctx": context, "token_prefix": prefix, "token_suffix": suffix}, tmp_path / "model.pth.tar-50")
    torch.save(context, tmp_path / "ctx.pt")
    torch.save({"ctx": torch.nn.Parameter(context)}, tmp_path / "dict.pt")
    save_file({"ctx": context}, tmp_path / "ctx.safetensors")
    save_file({"prompt": context}, tmp_path / "named.safetensors")
    for name in ("model.pth.tar-50", "ctx.pt", "dict.pt", "ctx.safetensors", "named.safetensors"):
        prompts = load_prompts(tmp_path / name)
        assert isinstance(prompts, CoOp)
        assert torch.equal(prompts.context, context)
        assert prompts.digest == coop(context).digest
    text = with_prompts(tiny(), tmp_path / "model.pth.tar-50").encode_labels(LabelSet.of(LABELS))
    plain = Plain(tiny(), coop(context), LABELS)
    torch.testing.assert_close(text.features, plain.text(context).detach(), atol=2e-6, rtol=0)


def test_maple_loads_from_the_released_layout_without_the_model_beside_it(tmp_path):
    extra = {
        "prompt_learner.token_prefix": torch.zeros(3, 1, 64),
        "text_encoder.ln_final.weight": torch.ones(64),
    }
    halves = {name: value.half() for name, value in maple_state().items()}
    released(halves | extra, tmp_path / "model.pth.tar-2")
    prompts = load_prompts(tmp_path / "model.pth.tar-2")
    assert isinstance(prompts, MaPLe)
    assert prompts.deeper == 2
    assert {f"prompt_learner.{name}" for name in prompts.tensors} == set(maple_state())
    assert all(value.dtype == torch.float32 for value in prompts.tensors.values())
    assert torch.equal(prompts.context, halves["prompt_learner.ctx"].float())


@pytest.mark.parametrize("make", [coop_of, maple])
def test_what_is_saved_is_safetensors_with_json_and_loads_to_the_same_bits(tmp_path, make):
    prompts = make()
    prompts = type(prompts)(prompts.tensors, {"model": "tiny", "labels": LABELS})
    save_prompts(prompts, tmp_path / "mine.safetensors")
    with safe_open(tmp_path / "mine.safetensors", "pt") as file:
        said = json.loads(file.metadata()["mltta"])
    assert said == {"format": "mltta-prompts-2", "kind": prompts.kind, "model": "tiny", "labels": LABELS}
    again = load_prompts(tmp_path / "mine.safetensors")
    assert type(again) is type(prompts)
    assert again.digest == prompts.digest
    assert again.about == prompts.about
    with pytest.raises(ConfigError, match=r"saved as \.safetensors"):
        save_prompts(prompts, tmp_path / "mine.pt")


def test_a_context_for_each_label_serves_as_many_labels_and_no_others(tmp_path):
    contexts = torch.stack([coop_of(3, seed).context for seed in range(len(LABELS))])
    torch.save(contexts, tmp_path / "each.pt")
    prompted = with_prompts(tiny(), tmp_path / "each.pt")
    text = prompted.encode_labels(LabelSet.of(LABELS))
    for i, label in enumerate(LABELS):
        want = Plain(tiny(), coop(contexts[i]), [label]).text(contexts[i]).detach()
        torch.testing.assert_close(text.features[i], want[0], atol=2e-6, rtol=0)
    method = create_method("tpt", prompted, LABELS, views=10)
    views = torch.nn.functional.normalize(torch.randn(2, 10, 32), dim=-1)
    assert method(Encoded({method.needs[0]: views})).isfinite().all()
    with pytest.raises(ConfigError, match=r"context for each of 7 labels, which does not fit a list of 2"):
        prompted.encode_labels(LabelSet.of(["dog", "cat"]))


class Bomb:
    def __reduce__(self):
        return (print, ("code ran",))


def test_code_in_a_file_is_refused_and_does_not_run(tmp_path, capsys):
    torch.save(
        {"state_dict": {"ctx": torch.zeros(4, 64)}, "scheduler": Bomb()}, tmp_path / "model.pth.tar-50"
    )
    (tmp_path / "raw.pt").write_bytes(pickle.dumps(Bomb()))
    for name in ("model.pth.tar-50", "raw.pt"):
        with pytest.raises(WeightsError, match="refused"):
            load_prompts(tmp_path / name)
    assert "code ran" not in capsys.readouterr().out


def test_a_number_of_numpys_beside_the_tensors_does_no_harm(tmp_path):
    torch.save(
        {"state_dict": {"ctx": torch.ones(4, 64)}, "val_result": np.float64(0.5)}, tmp_path / "a.pth.tar-9"
    )
    assert torch.equal(load_prompts(tmp_path / "a.pth.tar-9").context, torch.ones(4, 64))


def test_an_optimizer_in_a_checkpoint_is_read_as_a_husk(tmp_path, monkeypatch):
    """Not even torch's own classes are made: only their place is kept."""
    released({"ctx": torch.zeros(4, 64)}, tmp_path / "model.pth.tar-50")
    monkeypatch.setattr(torch.optim.SGD, "__setstate__", lambda *_: pytest.fail("an optimizer was made"))
    assert load_prompts(tmp_path / "model.pth.tar-50").context.shape == (4, 64)


def test_files_that_hold_no_prompts_are_named_with_the_reason(tmp_path):
    def refused(name: str, content: object, said: str) -> None:
        torch.save(content, tmp_path / name)
        with pytest.raises(WeightsError, match=said):
            load_prompts(tmp_path / name)

    refused(
        "weights.pt",
        {"a": torch.zeros(2), "b": torch.zeros(2)},
        r"weights\.pt contains no prompts.*named ctx",
    )
    refused("list.pt", [torch.zeros(2)], r"list\.pt contains no prompts: neither tensors")
    refused("flat.pt", torch.zeros(64), r"flat\.pt: CoOp's context is \(tokens, width\).*not \(64,\)")
    refused("nan.pt", torch.full((4, 64), torch.nan), r"nan\.pt contains values that are not finite")
    with pytest.raises(WeightsError, match=r"no (such )?weights file"):
        load_prompts(tmp_path / "none.pt")
    (tmp_path / "torn.safetensors").write_bytes(b"torn")
    with pytest.raises(WeightsError, match=r"torn\.safetensors is not"):
        load_prompts(tmp_path / "torn.safetensors")


def test_prompts_of_another_model_are_refused_by_name(tmp_path):
    torch.save(torch.zeros(4, 512), tmp_path / "wide.pt")
    with pytest.raises(
        ConfigError, match=r"wide\.pt was learned for another model.*width 512.*tiny has width 64"
    ):
        with_prompts(tiny(), tmp_path / "wide.pt")
    ours = coop(torch.zeros(4, 64), model="tiny", text_tower=tiny().text_fingerprint)
    save_prompts(ours, tmp_path / "ours.safetensors")
    with_prompts(tiny(), tmp_path / "ours.safetensors")
    with pytest.raises(
        ConfigError, match=r"ours\.safetensors was learned for tiny \(weights .*: use prompts"
    ):
        with_prompts(golden.backbone("vit"), tmp_path / "ours.safetensors")


def test_coop_changes_the_labels_only():
    plain, prompted = tiny(), with_prompts(tiny(), coop_of())
    pixels = torch.randn(3, 3, 32, 32)
    assert torch.equal(plain.encode_images(pixels), prompted.encode_images(pixels))
    assert plain.text_fingerprint == prompted.text_fingerprint
    labels = LabelSet.of(LABELS)
    assert not torch.equal(plain.encode_labels(labels).features, prompted.encode_labels(labels).features)
    assert plain.prompts is None
    assert "pixels" not in create_method("tpt", prompted, LABELS).requires
    encoded = Encoded({ViewSpec(count=1): plain.encode_images(pixels)[:, None]})
    assert not prompted.views(encoded, [ViewSpec(count=1)]).read_context


def test_the_command_line_says_what_a_file_holds(tmp_path):
    save_prompts(maple(), tmp_path / "maple.safetensors")
    said = mltta("prompts", "info", tmp_path / "maple.safetensors").stdout
    assert f"MaPLe prompts {maple().digest}" in said
    assert "context: 2 tokens of width 64" in said
    assert "image tower: width 128; blocks with prompts: 3" in said
    torch.save(torch.zeros(5, 3, 64), tmp_path / "each.pt")
    assert "3 tokens of width 64, one per label (5)" in mltta("prompts", "info", tmp_path / "each.pt").stdout
    assert "weights file" in mltta("prompts", "info", tmp_path / "none.pt", check=2).stderr
