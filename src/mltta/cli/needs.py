"""`mltta reproduce --plan`: what the tables and figures need, what is there, and what to do about the rest."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from mltta.cli import places
from mltta.errors import MlttaError

if TYPE_CHECKING:
    from mltta.cli.reproduce import ReproduceOptions
    from mltta.reproduction.paper import Setting

#: milliseconds in which one H200 encodes 64 views (docs/speed.md)
ENCODE_MS = {"RN50": 2.80, "ViT-B/32": 1.40, "ViT-B/16": 5.57}
VARIATIONS = 63
#: what to do about what is not given
HINTS = {
    "weights": "--model {0} downloads OpenAI's, or add --weights {0}=FILE (.pt: and --allow-torchscript)",
    "data": "--data {0}=DIR (docs/evaluation.md has the layouts)",
    "captions": "16,000 are included; `mltta captions generate`, then --captions LABELS=FILE",
    "prompts": "--prompts FILE, the checkpoint of {0}",
    "variations": "mltta variations --data {0}=DIR -o variations, then --variations variations",
}


class Plan:
    """What the cells of a run need, with what of it could be opened."""

    def __init__(self, options: ReproduceOptions, settings: Sequence[Setting]):
        self.options, self.settings = options, settings
        self.backbones: dict[str, Any] = {}
        self.datasets: dict[str, Any] = {}
        self.models = {places.paper_model(name): name for name in options.model}
        self.data = {places.key_of(one)[0]: one for one in options.data}

    def needs(self) -> Iterator[tuple[str, str, str, str]]:
        """Everything in the order in which it is looked up: ok, differs or missing; kind; name; what was found."""
        datasets = list(dict.fromkeys([*(one.dataset for one in self.settings), *self.data]))
        for name in dict.fromkeys([*(one.model for one in self.settings), *self.models]):
            yield self._tried("weights", name, self.models.get(name), self._weights)
        for name in datasets:
            yield self._tried("data", name, self.data.get(name), self._data)
        for name in datasets:
            given = places.captions_of(self.options, name)
            yield self._tried("captions", name, given, self._captions)
        for name in sorted({one.init for one in self.settings} - {"template"}):
            yield self._tried("prompts", name, self.options.prompts or None, self._prompts)
        for name in datasets if any(one.method == "difftpt" for one in self.settings) else ():
            yield self._tried("variations", name, self.options.variations, self._variations)
        if any(one.method == "rlcf" for one in self.settings):
            own = self.options.teacher in (None, "self")
            said = (
                "the model itself; the paper has --teacher ViT-L-14:openai" if own else self.options.teacher
            )
            yield "differs" if own else "ok", "teacher", "rlcf", str(said)

    def _tried(
        self, kind: str, name: str, given: Any, look: Callable[[str, Any], tuple[str, str]]
    ) -> tuple[str, str, str, str]:
        state, said = "differs" if kind == "captions" else "missing", HINTS[kind].format(name)
        try:
            state, said = (state, said) if given is None else look(name, given)
        except (MlttaError, OSError) as error:
            state, said = "missing", str(error).splitlines()[0]
        return state, kind, name, said

    def _weights(self, name: str, given: str) -> tuple[str, str]:
        self.backbones[name] = found = places.backbone_of(self.options, given)
        return "ok", f"{found.name}, {found.preprocess.size} pixels"

    def _data(self, name: str, given: str) -> tuple[str, str]:
        _, found, own = places.dataset_of(given, self.options)
        self.datasets[name] = found
        return "ok" if own and found.published == len(found) else "differs", found.summary()

    def _captions(self, name: str, source: str) -> tuple[str, str]:
        from mltta.captions.read import read_texts
        from mltta.captions.store import CaptionBase, base_folders
        from mltta.reproduction.conditions import CAPTIONS

        bases = [CaptionBase.load(folder) for folder in base_folders(source)]
        count, built = len(bases[0] if bases else read_texts(source)), {base.fingerprint for base in bases}
        lack = [key for key, own in self.backbones.items() if own.text_fingerprint not in built]
        said = f"{count:,} in {source}" + f"; to be embedded once for {', '.join(lack)}" * bool(lack)
        return "ok" if count == CAPTIONS else "differs", said

    def _prompts(self, name: str, files: Sequence[str]) -> tuple[str, str]:
        from mltta.model.maple import with_prompts

        found, backbone = places.load_several(files).get(name), self.backbones.get("ViT-B/16")
        if found is None:
            return "missing", HINTS["prompts"].format(name)
        if backbone is None:
            return "ok", f"{found.title}; whether it fits is not known without ViT-B/16"
        return "ok", with_prompts(backbone, found).name

    def _variations(self, name: str, folder: Any) -> tuple[str, str]:
        from mltta.images.generated import lacking_variations, variations_folder

        if name not in self.datasets:
            return "missing", HINTS["variations"].format(name)
        data = self.datasets[name]
        lack = len(lacking_variations(variations_folder(folder, data.name), data.ids, VARIATIONS))
        said = f"{len(data) - lack:,} of {len(data):,} images have {VARIATIONS}"
        return "missing" if lack else "ok", said

    def work(self) -> str:
        """Views to encode, the hours that takes on an H200, and the size of the cache, in words."""
        from mltta.data import coco, nuswide, voc
        from mltta.methods import method_class
        from mltta.model.encoded import union

        published = {
            "coco2014": coco.PUBLISHED["val2014"],
            "coco2017": coco.PUBLISHED["val2017"],
            "voc2007": voc.PUBLISHED[2007]["test"],
            "voc2012": voc.PUBLISHED[2012]["val"],
            "nuswide": nuswide.PUBLISHED["test", "drop"],
        }
        views, ms, size, specs = 0, 0.0, 0, dict[tuple[str, str, str], list[Any]]()
        for one in self.settings:
            own = dict(one.options) | ({"generated": "variations"} if one.method == "difftpt" else {})
            config = method_class(one.method).Config.make(str(own.pop("preset", self.options.preset)), **own)
            # under CoOp's prompts the views are those of the plain model
            init = one.init if one.init == "maple" else "template"
            specs.setdefault((one.model, one.dataset, init), []).extend(config.specs(224))
        for (model, dataset, _), wanted in specs.items():
            images = len(self.datasets[dataset]) if dataset in self.datasets else published[dataset]
            count = images * sum(spec.price(224) for spec in union(wanted))
            views, ms = views + round(count), ms + count / 64 * ENCODE_MS.get(model, 0.0)
            size += round(count) * 2 * (1024 if model == "RN50" else 512)
        lack = ", ".join({model for model, *_ in specs} - ENCODE_MS.keys())
        hours = f"{ms / 3.6e6:.1f} hours on one H200" + f" (without {lack}, which was not measured)" * bool(
            lack
        )
        return f"{views:,} views to encode, {hours}; {size / 1e9:.1f} GB of cached features"


def print_plan(options: ReproduceOptions) -> None:
    """Print what is needed and there, the work, and the command that runs what can be run."""
    from mltta.reproduction.filled import settings_of, view_settings

    settings = [setting for number in options.numbers for setting in settings_of(number)]
    if {"all", "3"} & {*options.figure, *options.table}:
        settings += [replace(one, model="ViT-B/16", dataset="coco2014") for one in view_settings()]
    plan, missing = Plan(options, settings), 0
    for state, kind, name, said in plan.needs():
        missing += state == "missing"
        typer.echo(f"{state:8} {kind:11} {name:10} {said}")
    typer.echo(f"\nWork of all cells: {plan.work()}.")
    typer.echo(
        "The time to adapt, to decode and to generate comes on top; it was not measured for all methods."
    )
    typer.echo(f"\n{missing} missing. Cells that need what is missing stay empty. To run the others:")
    typer.echo(f"  {shlex.join(['mltta', *(word for word in sys.argv[1:] if word != '--plan')])}")
