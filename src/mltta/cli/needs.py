"""`mltta reproduce --plan`: what the tables and figures need, what is there, and what to do about the rest."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import typer

from mltta.cli import places
from mltta.errors import MlttaError
from mltta.images.specs import ViewSpec

if TYPE_CHECKING:
    from mltta.cli.reproduce import ReproduceOptions
    from mltta.data import Dataset
    from mltta.model.backbone import Backbone
    from mltta.reproduction.paper import Setting

#: images of the published splits, and the milliseconds in which one H200 encodes 64 views (docs/speed.md)
IMAGES = {"coco2014": 40504, "coco2017": 5000, "voc2007": 4952, "voc2012": 5823, "nuswide": 83898}
ENCODE_MS = {"RN50": 2.80, "ViT-B/32": 1.40, "ViT-B/16": 5.57}
WIDTH = {"RN50": 1024}
CAPTIONS, VARIATIONS = 100_000, 63
HINTS = {
    "weights": "--model {0} fetches OpenAI's weights from the hub; or add --weights {0}=FILE (.pt: --allow-torchscript)",
    "data": "--data {0}=DIR (docs/evaluation.md has the layouts)",
    "captions": "the included 16,000 are used; generate {0} with `mltta captions generate`, then --captions {0}=FILE",
    "prompts": "--prompts FILE with the {0} checkpoint",
    "variations": "mltta variations --data {0}=DIR -o variations, then --variations variations",
}


@dataclass(frozen=True)
class Need:
    """Something that a run needs, and how it is."""

    kind: str
    name: str
    state: Literal["ok", "differs", "missing"]
    said: str

    def __str__(self) -> str:
        return f"{self.state:8} {self.kind:11} {self.name:10} {self.said}"


@dataclass
class Plan:
    """What the cells of a run need, as far as it is looked up."""

    options: ReproduceOptions
    settings: list[Setting]
    backbones: dict[str, Backbone] = field(default_factory=dict)
    datasets: dict[str, Dataset] = field(default_factory=dict)

    def names(self, kind: str, given: list[str]) -> list[str]:
        """The models or datasets of the cells, and those that are given besides."""
        return list(dict.fromkeys([*(getattr(setting, kind) for setting in self.settings), *given]))

    def needs(self) -> Iterator[Need]:
        """Everything that is needed, in the order in which it is looked up."""
        options, given = self.options, {places.paper_model(name): name for name in self.options.model}
        for name in self.names("model", list(given)):
            yield self._tried("weights", name, given.get(name), self._weights)
        data = {places.key_of(one.partition("=")[0].partition(":")[0]): one for one in options.data}
        for name in self.names("dataset", list(data)):
            yield self._tried("data", name, data.get(name), self._data)
        for name in dict.fromkeys(key.rstrip("0123456789") for key in self.names("dataset", list(data))):
            source = places.captions_of(options, name) or next(
                (
                    found
                    for key in data
                    if (found := places.captions_of(options, key)) and key.startswith(name)
                ),
                None,
            )
            yield self._tried("captions", name, source, self._captions)
        inits = {setting.init for setting in self.settings} - {"template"}
        for name in sorted(inits):
            yield self._tried("prompts", name, options.prompts or None, self._prompts)
        if any(setting.method == "difftpt" for setting in self.settings):
            for name in self.names("dataset", list(data)):
                yield self._tried("variations", name, options.variations, self._variations)
        if any(setting.method == "rlcf" for setting in self.settings):
            own = options.teacher in (None, "self")
            said = (
                "the model itself; the paper has --teacher ViT-L-14:openai" if own else str(options.teacher)
            )
            yield Need("teacher", "rlcf", "differs" if own else "ok", said)

    def _tried(self, kind: str, name: str, given: Any, look: Any) -> Need:
        """A need as it is found, or why it cannot be used."""
        if given is None:
            return Need(kind, name, "differs" if kind == "captions" else "missing", HINTS[kind].format(name))
        try:
            return Need(kind, name, *look(name, given))
        except (MlttaError, OSError) as error:
            return Need(kind, name, "missing", str(error).splitlines()[0])

    def _weights(self, name: str, given: str) -> tuple[str, str]:
        self.backbones[name] = found = places.backbone_of(self.options, given)
        return "ok", f"{found.name}, {found.preprocess.size} pixels"

    def _data(self, name: str, given: str) -> tuple[str, str]:
        _, self.datasets[name], own = places.dataset_of(given, self.options)
        found = self.datasets[name]
        whole = own and found.published == len(found)
        return "ok" if whole else "differs", found.summary()

    def _captions(self, name: str, source: str) -> tuple[str, str]:
        from mltta.captions.read import read_texts
        from mltta.captions.store import CaptionBase, base_folders

        bases = [CaptionBase.load(folder) for folder in base_folders(source)]
        count = len(bases[0]) if bases else len(read_texts(source))
        built = {base.fingerprint for base in bases}
        lack = [key for key, own in self.backbones.items() if own.text_fingerprint not in built]
        said = f"{count:,} in {source}" + f"; embedded once for {', '.join(lack)}" * bool(lack)
        return "ok" if count == CAPTIONS else "differs", said

    def _prompts(self, name: str, files: tuple[str, ...]) -> tuple[str, str]:
        from mltta.model.maple import with_prompts

        found = places.load_several(files)
        if name not in found:
            return "missing", HINTS["prompts"].format(name)
        fitting = []
        for key, backbone in self.backbones.items():
            try:
                with_prompts(backbone, found[name])
                fitting.append(key)
            except MlttaError:
                pass
        return "ok" if fitting else "missing", f"fits {', '.join(fitting) or 'none of the models given'}"

    def _variations(self, name: str, folder: Any) -> tuple[str, str]:
        from mltta.images.generated import lacking_variations, variations_folder

        if name not in self.datasets:
            return "missing", HINTS["variations"].format(name)
        ids = self.datasets[name].ids
        lack = len(lacking_variations(variations_folder(folder, self.datasets[name].name), ids, VARIATIONS))
        said = f"{len(ids) - lack:,} of {len(ids):,} images have {VARIATIONS}"
        return "missing" if lack else "ok", said

    def work(self) -> tuple[int, float, set[str], float]:
        """Views to encode, hours of it on an H200, models without a measured time, and bytes of the cache."""
        views, ms, untimed, size = 0, 0.0, set(), 0
        for model, dataset, init in dict.fromkeys((s.model, s.dataset, s.init) for s in self.settings):
            mine = [s for s in self.settings if (s.model, s.dataset, s.init) == (model, dataset, init)]
            if init == "coop" and any(s.init == "template" and s.model == model for s in self.settings):
                continue  # its views are those of the plain model
            images = len(self.datasets[dataset]) if dataset in self.datasets else IMAGES.get(dataset, 0)
            count = images * sum(spec.count for spec in self._specs(mine) if isinstance(spec, ViewSpec))
            views += count
            untimed |= {model} - ENCODE_MS.keys()
            ms += count / 64 * ENCODE_MS.get(model, 0.0)
            size += count * 2 * WIDTH.get(model, 512)
        return views, ms / 3.6e6, untimed, size

    def _specs(self, settings: list[Setting]) -> list[Any]:
        from mltta.methods import method_class
        from mltta.model.encoded import union

        found = []
        for setting in settings:
            own = dict(setting.options)
            preset = str(own.pop("preset", self.options.preset))
            generated = {"generated": "variations"} if setting.method == "difftpt" else {}
            found += method_class(setting.method).Config.make(preset, **own, **generated).specs(224)
        return union(found)


def print_plan(options: ReproduceOptions) -> None:
    """Print what is needed and there, the work, and the command that runs what can be run."""
    from mltta.reproduction.filled import settings_of, view_settings
    from mltta.reproduction.paper import Setting

    settings = [setting for number in options.numbers for setting in settings_of(number)]
    if {"all", "3"} & {*options.figure, *options.table}:
        settings += [Setting.of("ViT-B/16", s.method, "coco2014", **dict(s.options)) for s in view_settings()]
    plan = Plan(options, list(dict.fromkeys(settings)))
    found = []
    for need in plan.needs():
        found.append(need)
        typer.echo(need)
    views, hours, untimed, size = plan.work()
    lack = f", without {', '.join(sorted(untimed))}, whose speed was not measured" if untimed else ""
    typer.echo(f"\nWork for all of it: {views:,} views to encode, {hours:.1f} hours on one H200{lack}.")
    typer.echo("Adapting, decoding and generating come on top; their time was not measured for all methods.")
    typer.echo(f"Cache: {size / 1e9:.1f} GB of features in half precision.")
    missing = [need for need in found if need.state == "missing"]
    typer.echo(
        f"\n{len(missing)} of {len(found)} are missing; cells that need them stay empty. To run the others:"
    )
    typer.echo(f"  {shlex.join(['mltta', *(word for word in sys.argv[1:] if word != '--plan')])}")
