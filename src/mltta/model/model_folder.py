"""A model folder in open_clip's layout: settings that are data only, tensors in safetensors, a tokenizer.

``open_clip_config.json`` is untrusted. The allowed settings are listed here by type; anything that would fetch or
execute something else is refused unless the caller allows it.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mltta.errors import WeightsError
from mltta.storage import checksums
from mltta.storage.reading import SETTINGS, parse_json, read_bytes, shorten, shown
from mltta.storage.rules import Rule, either, flag, list_of, matches, number, whole

CONFIG = "open_clip_config.json"
#: in order of preference
WEIGHTS = ("open_clip_model.safetensors", "open_clip_pytorch_model.safetensors", "model.safetensors")
#: file of checksums in our model folders, to detect damage
SUMS = "checksums.json"

_NAME = r"[A-Za-z0-9][\w.-]*"


def _rules(names: Mapping[Rule, str], **more: Any) -> dict[str, Any]:
    """Allowed values of each setting: names by rule, and nested tables."""
    return {name: rule for rule, some in names.items() for name in some.split()} | more


# a plain name only: "hf-hub:" and "local-dir:" would fetch or read something else
_word, _repository = matches(f"({_NAME})?", 100), matches(f"{_NAME}(/{_NAME})?", 200)
_number = number(1e6)
_width, _several = whole(1 << 14, 1), list_of(_number, 4)
_side = either(whole(4096, 1), list_of(whole(4096, 1), 2, 2))
_TRANSFORMER = _rules(
    {
        _width: "width",
        number(64, 1e-6): "mlp_ratio",
        _number: "ls_init_value",
        _word: "pool_type block_type",
        flag: "final_ln_after_pool output_tokens qk_norm scaled_cosine_attn scale_heads scale_attn_inner "
        "scale_attn scale_fc",
    },
    act_kwargs={"approximate": _word},
    norm_kwargs={"eps": _number},
)
_VISION = _TRANSFORMER | _rules(
    {
        either(whole(256), list_of(whole(256, 1), 4, 4)): "layers",
        _width: "head_width attn_pooler_queries",
        whole(1024, 1): "patch_size",
        _side: "image_size",
        _number: "patch_dropout timm_drop timm_drop_path",
        either(flag, _word): "attentional_pool",
        whole(1 << 10, 1): "attn_pooler_heads",
        flag: "no_ln_pre timm_model_pretrained timm_proj_bias",  # pretrained is accepted but ignored
        _word: "pos_embed_type timm_model_name timm_pool timm_proj",
    }
)
_TEXT = _TRANSFORMER | _rules(
    {
        whole(4096, 1): "context_length",
        whole(1 << 21, 1): "vocab_size",
        whole(1 << 10, 1): "heads",
        whole(256): "layers",
        flag: "embed_cls no_causal_mask proj_bias",
        whole(1 << 21): "pad_id eos_id",
        _word: "proj_type tokenizer_mode",
        _repository: "hf_tokenizer_name",
    },
    tokenizer_kwargs={"clean": _word, "strip_sep_token": flag, "context_length": whole(4096, 1)},
)
_MULTIMODAL = _TEXT | _rules({_width: "dim_head n_queries", whole(1 << 10, 1): "attn_pooler_heads"})
_MODEL = _rules({_width: "embed_dim", _number: "init_logit_scale init_logit_bias"})
_MODEL |= _rules({flag: "quick_gelu custom_text nonscalar_logit_scale output_dict"})
_MODEL |= {"vision_cfg": _VISION, "text_cfg": _TEXT, "multimodal_cfg": _MULTIMODAL}
_PREPROCESS = _rules({_side: "size", _word: "mode interpolation resize_mode", _several: "mean std"})
_PREPROCESS["fill_color"] = either(whole(255), _several)
#: allowed by the caller only: another model, or a tokenizer's Python code
_REMOTE = _rules(
    {_repository: "hf_model_name", flag: "hf_model_pretrained", _word: "hf_proj_type hf_pooler_type"}
)


@dataclass(frozen=True)
class FolderConfig:
    """The validated settings of a model folder."""

    model: dict[str, Any]
    preprocess: dict[str, Any]
    #: whether the tokenizer may run its own code: requested by the file and allowed by the caller
    remote_code: bool = False

    @property
    def tokenizer_name(self) -> str | None:
        return self.model["text_cfg"].get("hf_tokenizer_name")  # type: ignore[no-any-return]

    def least_numbers(self) -> int:
        """A lower bound on the model's number of parameters, as far as the settings tell."""
        vision, text = self.model["vision_cfg"], self.model["text_cfg"]
        count = 0
        if "timm_model_name" not in vision and isinstance(vision.get("layers", 12), int):
            side = vision.get("image_size", 224)
            tall, wide = side if isinstance(side, list) else (side, side)
            patch, width = max(1, vision.get("patch_size", 16)), vision.get("width", 768)
            count += (tall // patch) * (wide // patch) * width + _blocks(vision, 12, width)
        if "hf_model_name" not in text:
            width = text.get("width", 512)
            words = text.get("vocab_size", 49408) + text.get("context_length", 77)
            count += words * width + _blocks(text, 12, width)
        return count


def _blocks(part: Mapping[str, Any], layers: int, width: int) -> int:
    return int(part.get("layers", layers) * width * width * (4 + 2 * part.get("mlp_ratio", 4.0)))


def read_config(file: Path, allow_remote_code: bool = False) -> FolderConfig:
    """Read a model's settings; any setting that is not listed is refused."""
    try:
        content = read_bytes(file, SETTINGS, WeightsError)
    except OSError as error:
        raise WeightsError(f"{file}: cannot be read: {error.strerror}") from error
    held = parse_json(content, file, WeightsError, "download the model's settings again")
    if not isinstance(held, dict) or not isinstance(held.get("model_cfg"), dict):
        raise WeightsError(f"{file}: model_cfg is missing, so this is not a model configuration")
    model, preprocess = held["model_cfg"], held.get("preprocess_cfg") or {}
    for part in ("vision_cfg", "text_cfg"):
        if not isinstance(model.get(part), dict):
            raise WeightsError(f"{file}: model_cfg.{part} is missing, so this is not a model configuration")
    if "embed_dim" not in model:
        raise WeightsError(f"{file}: model_cfg.embed_dim is missing, so this is not a model configuration")
    text = model["text_cfg"]
    words = text.get("tokenizer_kwargs")
    wants_code = isinstance(words, dict) and words.get("trust_remote_code") not in (None, False)
    if (wants_code or "hf_model_name" in text) and not allow_remote_code:
        what = "its tokenizer's own Python code" if wants_code else "a text tower from another repository"
        raise WeightsError(
            f"{file} requests {what}, which is not run by default. If you trust its source, pass "
            "--allow-remote-code."
        )
    if isinstance(words, dict):
        words.pop("trust_remote_code", None)
    rules = {**_MODEL, "text_cfg": {**_TEXT, **_REMOTE}} if allow_remote_code else _MODEL
    checked = _checked(model, rules, "model_cfg", file)
    return FolderConfig(checked, _checked(preprocess, _PREPROCESS, "preprocess_cfg", file), wants_code)


def _checked(held: Any, rules: Mapping[str, Any], where: str, file: Path) -> dict[str, Any]:
    """The given settings, each of an allowed type; None keeps the default."""
    if not isinstance(held, dict):
        raise WeightsError(f"{file}: {where} must be an object of settings")
    found: dict[str, Any] = {}
    for name, value in held.items():
        if name not in rules:
            raise WeightsError(
                f"{file}: {where} has an unknown setting {shorten(name)!r}, which may be unsafe; remove it, or "
                "load the model with open_clip itself if you trust it"
            )
        if value is None:
            continue
        rule = rules[name]
        if isinstance(rule, Mapping):
            found[name] = _checked(value, rule, f"{where}.{name}", file)
        elif rule(value):
            found[name] = value
        else:
            raise WeightsError(f"{file}: {where}.{name} = {shown(value)} is not a valid value")
    return found


def find_weights(folder: Path) -> Path:
    """The safetensors file of a folder; pickled weights are never chosen automatically."""
    named = [folder / name for name in WEIGHTS if (folder / name).is_file()]
    others = named or sorted(folder.glob("*.safetensors"))
    if others:
        return others[0]
    for name in pickled(folder):
        raise WeightsError(
            f"{folder} contains no safetensors, only pickled weights, which are not opened by default. If you trust "
            f"their source, name the file: --model {folder} --weights {folder / name}"
        )
    raise WeightsError(f"{folder} contains no weights (expected open_clip_model.safetensors)")


def pickled(folder: Path) -> list[str]:
    """The names of pickled weights in a folder."""
    return sorted(file.name for kind in ("bin", "pt", "pth") for file in folder.glob(f"*.{kind}"))


def build(config: FolderConfig, weights: Path, numbers: int | None) -> Any:
    """Build the model that the settings describe, and load its tensors from a file.

    Args:
        numbers: how many numbers the file holds; settings that need more are refused before memory is allocated.
    """
    import open_clip
    from open_clip.factory import load_checkpoint

    if numbers is not None and config.least_numbers() > numbers:
        raise WeightsError(
            f"{weights} contains {numbers:,} numbers, but the settings beside it require at least "
            f"{config.least_numbers():,}: they do not belong together"
        )
    said = {"model_cfg": config.model, "preprocess_cfg": config.preprocess}
    with tempfile.TemporaryDirectory() as clean:  # contains only the checked settings
        (Path(clean) / CONFIG).write_text(json.dumps(said), encoding="utf-8")
        model = open_clip.create_model(f"local-dir:{clean}", load_weights=False, pretrained_text=False)
    load_checkpoint(model, str(weights), strict=True, weights_only=True)
    return model


def tokenizer(config: FolderConfig, folder: Path, source: str | None = None) -> Any:
    """The folder's own byte-pair table if it has one, else the tokenizer named in the settings, local or on the hub.

    Args:
        source: where to read a Hugging Face tokenizer from (default: the folder).
    """
    from open_clip.tokenizer import DEFAULT_CONTEXT_LENGTH, HFTokenizer, SimpleTokenizer

    text = config.model["text_cfg"]
    options: dict[str, Any] = {"context_length": text.get("context_length", DEFAULT_CONTEXT_LENGTH)}
    options |= text.get("tokenizer_kwargs", {})
    own = folder / "bpe.txt.gz"
    if config.tokenizer_name and not own.is_file():  # a byte-pair table needs no other library
        mode = text.get("tokenizer_mode")
        trust = {"trust_remote_code": config.remote_code}
        return HFTokenizer(source or str(folder), tokenizer_mode=mode, **options, **trust)
    options.pop("strip_sep_token", None)
    return SimpleTokenizer(**options, **({"bpe_path": str(own)} if own.is_file() else {}))


def check_sums(folder: Path) -> None:
    """Verify a folder's files against its checksums, if it has any."""
    file = folder / SUMS
    if not file.is_file():
        return
    held = parse_json(
        read_bytes(file, SETTINGS, WeightsError), file, WeightsError, "download the model again"
    )
    whole = isinstance(held, dict) and isinstance(held.get("files"), dict)
    whole = whole and held.get(checksums.CHECKSUM) == checksums.of_data(held)
    damaged = (
        folder / name
        for name, said in (held["files"] if whole else {}).items()
        if not re.fullmatch(_NAME, name) or checksums.of_file(folder / name) != said
    )
    found = next(damaged, None if whole else file)
    if found is not None:
        raise WeightsError(f"{found} is damaged: reinstall mltta, or download the model again")
