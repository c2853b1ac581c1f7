"""Sources of model weights: a hub tag, a local folder or a local file. No code in them is run unless allowed."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
from torch import nn

from mltta.errors import HubError, MlttaError, WeightsError
from mltta.model import model_folder as folder_
from mltta.model.names import PAPER_MODELS
from mltta.model.state_dict import infer_config, read_state_dict
from mltta.storage import hub
from mltta.storage.folders import MINI
from mltta.storage.hub import cache_only_if_cut_off
from mltta.storage.tensors import checked_archive, reason

#: allowed range of the logit scale; CLIP's ends at 100, SigLIP's at about 120
LOGIT_SCALES = (0.1, 999.0)
SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".tar")
WAYS_OUT = (
    "Options: use the embedded model (--model mini); connect to the internet once so that the weights are cached; "
    "copy the Hugging Face cache (HF_HOME) from a machine that has them; or give a local file, "
    "e.g. --model ViT-B/16 --weights FILE.safetensors."
)


@dataclass(frozen=True)
class Loaded:
    """An open_clip model with its tokenizer, preprocessing and name."""

    name: str
    model: Any
    tokenizer: Any
    preprocess: dict[str, Any]
    trained: bool = True
    #: the commit on the hub, if it came from the hub
    revision: str | None = None


def load(
    name: str | None,
    weights: str | Path | None = None,
    *,
    quick_gelu: bool | None = None,
    allow_torchscript: bool = False,
    allow_remote_code: bool = False,
    random_weights: bool = False,
) -> Loaded:
    """Build a model and load its weights from the source given by ``name`` and ``weights``, as in `load_backbone`.

    Args:
        name: None infers the architecture from a file in OpenAI's layout.
    """
    if name == "mini" and weights is None:
        loaded = replace(_from_folder(MINI), name="mini")
    elif name is not None and Path(name).is_dir():
        loaded = _from_folder(Path(name), None if weights is None else Path(weights), allow_remote_code)
    elif name is not None and name.startswith(hub.PREFIX):
        loaded = _from_repository(name, allow_remote_code)
    else:
        tag = None if weights is None else str(weights)
        if name is not None and ":" in name and tag is None:
            name, _, tag = name.partition(":")
        if tag is not None and (Path(tag).exists() or tag.endswith(SUFFIXES) or "/" in tag):
            loaded = _from_file(name, Path(tag), quick_gelu, allow_torchscript)
        elif name is None:
            raise WeightsError("no model given: pass a model name, a folder or a weights file")
        else:
            loaded = _from_name(name, tag, random_weights)
    check_numbers(loaded)
    return loaded


def _from_name(name: str, tag: str | None, random_weights: bool) -> Loaded:
    import open_clip

    arch = PAPER_MODELS.get(name, name.replace("/", "-"))
    if open_clip.get_model_config(arch) is None:
        raise WeightsError(
            f"unknown model {name!r}. The paper's are {', '.join(PAPER_MODELS)}; `mltta models --all` lists every "
            "open_clip model; local folders and files work too."
        )
    if random_weights:
        with _quiet():
            model = open_clip.create_model(arch, pretrained=None, pretrained_text=False)
        tokenizer = open_clip.get_tokenizer(arch)
        return Loaded(name, model, tokenizer, open_clip.get_model_preprocess_cfg(model), trained=False)
    tags = open_clip.list_pretrained_tags_by_model(arch)
    if tag is None:
        if "openai" not in tags and len(tags) != 1:
            raise WeightsError(
                f"{name} has several pretrained weights: choose one, e.g. {name}:{tags[0] if tags else 'TAG'}"
                f" (available: {', '.join(tags) or 'none; give a local file'})"
            )
        tag = "openai" if "openai" in tags else tags[0]
    config = open_clip.get_pretrained_cfg(arch, tag)
    if not config:
        raise WeightsError(f"{name} has no weights {tag!r}; available: {', '.join(tags) or 'none'}")
    name = f"{name}:{tag}"
    try:
        with _quiet(), cache_only_if_cut_off() as cut_off:
            # the tag sets the activation: OpenAI's weights need QuickGELU
            how = {"require_pretrained": True, "force_quick_gelu": bool(config.get("quick_gelu"))}
            model = open_clip.create_model(arch, pretrained=tag, **how)
            tokenizer = open_clip.get_tokenizer(arch)
    except Exception as error:  # open_clip and the hub raise many types
        what = f"could not be loaded: {reason(error)}"
        if cut_off:
            what = "are not on this machine, and the model hub cannot be reached"
        raise WeightsError(f"the weights of {name} {what}\n{WAYS_OUT}") from error
    return Loaded(name, model, tokenizer, open_clip.get_model_preprocess_cfg(model))


def _from_folder(
    folder: Path, weights: Path | None = None, allow_remote_code: bool = False, repository: str = ""
) -> Loaded:
    """A model folder: settings are data only, and weights are safetensors unless the caller names another file."""
    import open_clip

    if not (folder / folder_.CONFIG).is_file():
        named = "".join(folder_.pickled(folder)[:1])
        also = (
            f"; to read pickled weights, give an architecture and --weights {folder / named}" if named else ""
        )
        raise WeightsError(f"{folder} is not a model folder: open_clip_config.json is missing{also}")
    try:
        folder_.check_sums(folder)
        config = folder_.read_config(folder / folder_.CONFIG, allow_remote_code)
        if weights is None:
            weights = folder_.find_weights(folder)
        elif not weights.is_file():
            raise WeightsError(f"no such weights file: {weights}")
        elif is_zipfile(weights):
            checked_archive(weights)
        elsewhere = config.tokenizer_name if config.tokenizer_name != repository and repository else None
        with _quiet():
            model = folder_.build(config, weights, count_numbers(weights))
            tokenizer = folder_.tokenizer(config, folder, elsewhere)
    except MlttaError:
        raise
    except Exception as error:  # open_clip and timm raise many types
        raise WeightsError(f"{folder} could not be loaded as an open_clip model: {reason(error)}") from error
    return Loaded(folder.name, model, tokenizer, open_clip.get_model_preprocess_cfg(model))


def _from_repository(name: str, allow_remote_code: bool) -> Loaded:
    """A model on the hub: settings are fetched and validated first, then the tensors of the same commit."""
    try:
        folder = hub.pull(name, [folder_.CONFIG])
        if (folder / folder_.CONFIG).is_file():
            folder_.read_config(folder / folder_.CONFIG, allow_remote_code)
        name = hub.pinned(name, folder)
        tensors = [pattern for pattern in folder_.WEIGHTS if pattern.startswith("open_clip")]
        folder = hub.pull(name, [*hub.TOKENIZERS, *tensors])
        if not any((folder / pattern).is_file() for pattern in tensors):
            folder = hub.pull(name, ["*.safetensors"])
    except HubError as error:
        raise WeightsError(f"{error}\n{WAYS_OUT}") from error
    repository, revision = hub.parted(name)
    with cache_only_if_cut_off():
        loaded = _from_folder(folder, None, allow_remote_code, repository)
    said = f"{hub.PREFIX}{repository}" + (f"@{revision[:12]}" if revision else "")
    return replace(loaded, name=said, revision=revision)


def count_numbers(path: Path) -> int | None:
    """Count the numbers in a safetensors file from its header; None for other files."""
    if path.suffix != ".safetensors":
        return None
    from safetensors import safe_open

    try:
        with safe_open(path, "pt") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # type: ignore[no-any-return]  # noqa: SIM118  # type: ignore[no-any-return]
    except Exception as error:
        raise WeightsError(f"{path} is not a readable weights file ({reason(error)})") from error


def check_numbers(loaded: Loaded) -> None:
    """Refuse a model with non-finite weights or an implausible logit scale, which would make all scores invalid."""
    for name, value in loaded.model.state_dict().items():
        if value.is_floating_point() and value.numel():
            numbers = value.detach().cpu().float().numpy()
            if not np.isfinite([numbers.min(), numbers.max()]).all():
                damage = f"{name} contains a value that is not finite"
                raise WeightsError(f"the weights of {loaded.name} are damaged: {damage}")
    held = getattr(loaded.model, "logit_scale", None)
    scale = 1.0 if held is None else float(held.detach().exp().max())
    if not LOGIT_SCALES[0] <= scale <= LOGIT_SCALES[1]:
        raise WeightsError(
            f"the weights of {loaded.name} have an implausible logit scale of {scale:g} "
            f"(usual: 10 to 150); the file is damaged or not a CLIP model"
        )


def _from_file(name: str | None, path: Path, quick_gelu: bool | None, allow_torchscript: bool) -> Loaded:
    import open_clip

    state, is_openai = read_state_dict(path, allow_torchscript)
    arch = None if name is None else PAPER_MODELS.get(name, name.replace("/", "-"))
    config = infer_config(state) if arch is None else open_clip.get_model_config(arch)
    if config is None:
        raise WeightsError(f"unknown model {name!r}; `mltta models --all` lists the architectures")
    if is_openai or (arch or "").endswith("-quickgelu"):
        quick_gelu = True
    if quick_gelu is None:
        raise WeightsError(
            f"{path.name} does not specify its activation, and the wrong one silently reduces "
            "accuracy: pass --quick-gelu for OpenAI's weights, --no-quick-gelu for most others (LAION, DataComp)."
        )
    numbers = sum(value.numel() for value in state.values())
    if arch is None and folder_.FolderConfig(config, {}).least_numbers() > numbers:
        said = "has the tensor names of a CLIP model, but not its shapes"
        raise WeightsError(f"{path} {said}")
    try:
        if arch is None:
            model: nn.Module = open_clip.CLIP(**config, quick_gelu=quick_gelu)
        else:
            with _quiet():
                model = open_clip.create_model(arch, pretrained_text=False, force_quick_gelu=quick_gelu)
    except Exception as error:  # shapes from an untrusted file raise many types
        raise WeightsError(f"cannot build a model for {path}: {reason(error)}") from error
    both = model.state_dict(), state
    wanted, given = ({key: value.shape for key, value in held.items()} for held in both)
    misfits = [key for key in {**wanted, **given} if wanted.get(key) != given.get(key)]
    if misfits:
        raise WeightsError(
            f"{path} does not fit {name or 'its detected layout'}: {len(misfits)} tensors are missing, "
            f"unexpected or of another shape, e.g. {misfits[0]}"
        )
    model.load_state_dict(state)
    tokenizer = open_clip.get_tokenizer(arch) if arch else open_clip.SimpleTokenizer()
    preprocess = dict(open_clip.get_model_preprocess_cfg(model))
    preprocess.setdefault("size", getattr(model.visual, "image_size", 224))
    return Loaded(f"{name or path.stem}:{path.name}", model, tokenizer, preprocess)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress open_clip's messages on the root logger; errors are reported by mltta."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)
