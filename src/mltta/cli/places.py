"""Where `mltta reproduce` measures: every model on every dataset, with the captions, prompts and files given for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mltta.cli import groups
from mltta.cli.eval import WordingOptions, cut
from mltta.cli.options import option
from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.data import Dataset
    from mltta.model.backbone import Backbone
    from mltta.model.learned_prompts import AnyPrompts
    from mltta.reproduction.rerun import Bench

LABEL_SETS = ("voc", "coco", "nuswide")


class PlaceOptions(
    groups.DatasetRunOptions,
    groups.PromptOptions,
    groups.MethodOptions,
    groups.FileOptions,
    WordingOptions,
    panel=None,
):
    """Models, datasets, and what is given for all or for one of them."""

    data: tuple[str, ...] = option((), "A dataset, e.g. voc2012=VOCdevkit.", "-d", metavar="NAME[:SPLIT]=DIR")
    model: tuple[str, ...] = option((), "One or several (default: mini).", "-m")
    weights: tuple[str, ...] = option((), "Pretrained tag or local weights file.", metavar="[MODEL=]FILE")
    captions: tuple[str, ...] = option((), "Caption base or file.", metavar="[voc|coco|nuswide=]PATH")
    prompts: tuple[str, ...] = option((), "Table 2: CoOp's and MaPLe's prompts.", metavar="FILE")
    variations: Path | None = option(None, "Generated images for DiffTPT.", metavar="DIR")


def places_of(options: PlaceOptions, unfit: dict[str, str]) -> Iterator[Bench]:
    """Every model on every dataset, with the learned prompts that fit; what does not fit goes into ``unfit``."""
    from mltta.model.maple import with_prompts
    from mltta.reproduction.rerun import Bench

    learned, seen = load_several(options.prompts), set()
    variations = None if options.variations is None else str(options.variations)
    for name in options.model or (("mini",) if options.data else ()):
        backbone = backbone_of(options, name)
        prompted: dict[str, Backbone] = {}
        for kind, found in learned.items():
            try:
                prompted[kind] = with_prompts(backbone, found)
            except ConfigError as error:
                unfit[f"{found.title} prompts on {name}"] = str(error)
        for given in options.data:
            key, dataset, own = dataset_of(given, options)
            captions = captions_of(options, key)
            place = Bench(paper_model(name), key, backbone, dataset, own, prompted, captions, variations)
            if (place.model, place.key) in seen:
                raise ConfigError(f"--data {given}: {place.key} is given twice")
            seen.add((place.model, place.key))
            yield place


def backbone_of(options: PlaceOptions, name: str) -> Backbone:
    """A model with the weights given for it."""
    known = [word for one in options.model or ("mini",) for word in (one, paper_model(one))]
    weights = given_for("weights", options.weights, (name, paper_model(name)), known)
    return groups.open_backbone(options, name, **({} if weights is None else {"weights": weights}))


def dataset_of(given: str, options: PlaceOptions) -> tuple[str, Dataset, bool]:
    """A dataset as it was named: its key, its images, and whether they are those of the paper."""
    from mltta.data import named_dataset

    dataset = named_dataset(given, **options.wording(options.preset))
    if options.synonyms is not None or options.wordnet:
        dataset = replace(dataset, labels=groups.with_synonyms(dataset.labels, options))
    typer.echo(dataset.summary(), err=True)
    key, split = key_of(given)
    return key, cut(dataset, options, options.seed), not split and options.corrupt is None


def key_of(given: str) -> tuple[str, str]:
    """A dataset given as NAME[:SPLIT]=DIR, as the paper's cells call it, and its split."""
    name, _, split = given.partition("=")[0].partition(":")
    return "".join(filter(str.isalnum, name.lower())), split


def captions_of(options: PlaceOptions, key: str) -> str | None:
    """The captions given for a dataset."""
    known = [*LABEL_SETS, *(key_of(one)[0] for one in options.data), key]
    return given_for("captions", options.captions, (key, key.rstrip("0123456789")), known)


def given_for(what: str, given: Sequence[str], names: Sequence[str], known: Collection[str]) -> str | None:
    """The value given as NAME=VALUE for the first of some names, else the one given without a name."""
    found: dict[str, str] = {}
    for one in given:
        name, equals, value = one.partition("=")
        name, value = (name, value) if equals else ("", one)
        if name and name not in known:
            raise ConfigError(
                f"--{what} {one}: unknown name {name!r}. Known here: {', '.join(dict.fromkeys(known))}"
            )
        if found.setdefault(name, value) != value:
            raise ConfigError(f"--{what} {one}: {name or 'a value for all'} is given twice")
    return next((found[name] for name in (*names, "") if name in found), None)


def load_several(files: Iterable[str]) -> dict[str, AnyPrompts]:
    """Learned prompts by their kind; a table has room for one of each."""
    from mltta.model.learned_prompts import load_prompts

    found: dict[str, AnyPrompts] = {}
    for file in files:
        one = load_prompts(file)
        if found.setdefault(one.kind, one) is not one:
            raise ConfigError(f"--prompts {file}: {one.title} prompts are given twice")
    return found


def paper_model(name: str) -> str:
    """A model as the paper calls it: ViT-B-16:openai is ViT-B/16; any other keeps its name."""
    from mltta.model.names import PAPER_MODELS

    plain = name.removesuffix(":openai")
    return next((paper for paper, own in PAPER_MODELS.items() if plain in (paper, own)), plain)
