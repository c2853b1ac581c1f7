"""Pages about results: tables, AP of each label, gain by the number of labels, example images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mltta.data import Dataset
from mltta.evaluation.comparison import Line, comparison
from mltta.images.decode import load_image
from mltta.tables.page import Plot, Section, html_page
from mltta.tables.plots import bars_by_group, label_logits, per_class


def comparison_page(groups: Sequence[Sequence[Line]], title: str = "Methods side by side") -> str:
    """One self-contained page about the results of one or several datasets."""
    return html_page(title, [comparison_section(found) for found in groups])


def comparison_section(found: Sequence[Line]) -> Section:
    """Table, AP of each label and gain by label count of methods on one dataset; the first is what gains are over."""
    run = found[0].run
    where = f"{run['dataset']}, {run['model']}"
    by_label = {x.title: np.mean([one.per_class for one in x.summaries], axis=0).tolist() for x in found}
    drawn = per_class(f"AP of each label, {where}", run["labels"], by_label)
    figures = [Plot(drawn, "Labels sorted by the first method's AP.")]
    if len(found) > 1:
        figures.append(Plot(gain_by_label_count(found), "Bins without images are left empty."))
    return Section(where, tables=(comparison(found),), figures=tuple(figures))


def gain_by_label_count(found: Sequence[Line]) -> str:
    """mAP beyond the first method, for images with few labels and with many."""
    run, first = found[0].run, found[0].summaries[0].by_count

    def gap(line: Line, name: str) -> float | None:
        gained = line.summaries[0].by_count[name].mean_ap - first[name].mean_ap
        return None if np.isnan(gained) else float(gained)

    bins = list(first)
    gains = {line.title: [gap(line, name) for name in bins] for line in found[1:]}
    title = f"Gain over {found[0].title} by labels per image, {run['dataset']}, {run['model']}"
    return bars_by_group(title, [f"{name} labels" for name in bins], gains, "mAP gained")


def example_section(found: Sequence[Line], dataset: Dataset, count: int = 4) -> Section:
    """The images with the most labels, and what each method makes of them: logits, true labels coloured."""
    first = found[0].summaries[0]
    names = first.result.run["labels"]
    most = np.argsort(-(first.targets == 1).sum(axis=1), kind="stable")[:count]
    figures = []
    for row in most.tolist():
        index = int(first.result.scored[row])
        truth = [names[i] for i in (first.targets[row] == 1).nonzero()[0]]
        # branches are averaged, so that methods with one prompt and with two are on one scale
        scores = {x.title: x.summaries[0].result.branches()[row].mean(axis=0).tolist() for x in found}
        image = load_image(dataset.images[index])
        figures.append(Plot(label_logits(dataset.ids[index], image, names, scores, truth)))
    said = "The images with the most labels. Bars are logits, the mean over a method's prompts; true labels in colour."
    return Section(f"Examples from {dataset.name}", (said,), figures=tuple(figures))
