"""How cells were measured, and what of it is not as in the paper, in words, row by row where rows differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mltta.methods import method_class
from mltta.model.prompts import DEFAULT_TEMPLATE
from mltta.reproduction.paper import Setting

if TYPE_CHECKING:
    from mltta.reproduction.rerun import Reproduction

#: captions for each label set, and RLCF's teacher
CAPTIONS, TEACHER = 100_000, "ViT-L-14"
#: what the released code behind a row of the paper does that no setting here does
UNLIKE = {
    "dmn": "the memory's weight is 1; the released code searches it on test labels",
    "tda": "one setting for all datasets; the released code has one for each",
}
#: what tells rows apart, in the order of what is tried
_APART: tuple[Callable[[Setting], str], ...] = (
    lambda s: s.dataset,
    lambda s: s.model,
    lambda s: s.method,
    lambda s: f"from {s.init}",
    lambda s: " ".join([s.method, *(f"{name}={value}" for name, value in s.options)]),
    lambda s: f"{s.method} on {s.model}, {s.dataset}",
)


def conditions(done: Reproduction, setting: Setting) -> dict[str, str]:
    """The conditions of a cell, by name."""
    line = done.found[setting]
    run, result, chosen = line.run, line.summaries[0].result, dict(setting.options)
    preset, cls = str(chosen.get("preset", done.preset)), method_class(setting.method)
    usual, cut = cls.Config.make(preset), ("generated", *chosen)
    own = [f"{k}={v}" for k, v in run["config"].items() if k not in cut and v != getattr(usual, k)]
    reads = cls.needs_captions(cls.Config(**run["config"]))
    template = "" if run["prompts"] else " | ".join(f"“{text}”" for text in run["template"])
    said = {
        "model": run["model"] if run["model"] != setting.model else "",
        "prompts": run["prompts"] or "",
        "arithmetic": str(run["arithmetic"]),
        "images": f"{len(result.scored):,}" + f" of {len(result):,}" * bool(result.failed),
        "preset": preset,
        "settings": ", ".join(own),
        "views": "" if "views" in chosen else str(run["config"].get("views", 1)),
        "captions": done.bases.get(run["captions"], "others") if reads else "",
        **done.words,
        "template": template + " and descriptions" * bool(run["descriptions"]),
        "teacher": "the model itself" if run["teacher"] == "self" else run["teacher"] or "",
        "seed": str(run["seed"]),
        "orders of the images": str(len(line.summaries)) if run["online"] else "",
    }
    return {name: text for name, text in said.items() if text}


def differences(done: Reproduction, setting: Setting) -> dict[str, str]:
    """What is not as in the paper, by what it is about."""
    run, said = done.found[setting].run, conditions(done, setting)
    found = {name: said[name] for name in ("settings",) if name in said}
    if not said.get("captions", f"{CAPTIONS:,} ").startswith(f"{CAPTIONS:,} "):
        found["captions"] = f"{said['captions']}; the paper has {CAPTIONS:,} for each label set"
    if not said.get("teacher", TEACHER).startswith(TEACHER):
        found["teacher"] = f"{said['teacher']}; the paper has {TEACHER}"
    if said.get("template", usual := f"“{DEFAULT_TEMPLATE}”") != usual:
        found["template"] = said["template"]
    if " of " in said["images"]:
        found["images"] = f"only {said['images']} could be measured"
    if done.words.get("label names") == "readable" and "tv monitor" in run["prompted_as"]:
        found["label names"] = "dining table, potted plant, tv monitor; the released code has no spaces"
    if setting.method in UNLIKE:
        logits = "adds logits; the released code adds probabilities; " * (
            run["config"].get("score") == "logits"
        )
        found["method"] = logits + UNLIKE[setting.method]
    return found


def condition_notes(done: Reproduction, settings: Sequence[Setting]) -> list[str]:
    """Two notes below a table: its conditions, and what of them is not as in the paper."""
    found = []
    for head, tell in (("Conditions", conditions), ("Not as in the paper", differences)):
        told = {setting: tell(done, setting) for setting in settings}
        parts = []
        for name in dict.fromkeys(name for own in told.values() for name in own):
            having = {setting: own[name] for setting, own in told.items() if name in own}
            rows = []
            for text in dict.fromkeys(having.values()):
                mine = [setting for setting in having if having[setting] == text]
                rest = [s for s in having if s not in mine] or [s for s in settings if s not in having]
                rows.append(f"{text} ({_who(mine, rest)})" if rest else text)
            parts.append(f"{name}: {'; '.join(rows)}")
        found += [f"{head}. {'. '.join(parts)}."] * bool(parts)
    return found


def _who(mine: Sequence[Setting], rest: Sequence[Setting]) -> str:
    """Some rows in as few words as tell them from the others: their datasets, models, methods, …"""
    for tell in _APART:
        if not {*map(tell, mine)} & {*map(tell, rest)}:
            break
    return ", ".join(dict.fromkeys(map(tell, mine)))
