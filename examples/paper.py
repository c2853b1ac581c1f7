"""ML-TTA on one photo, step by step: views, captions, label sets, and scores beside those of CLIP and TPT.

    python examples/paper.py [PHOTO [LABELS [PICTURE]]]

Prints every step, and draws views and scores, as in Figure 1a of the paper (default: paper.png).
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from ml_tta import CAPTIONS_PER_VIEW, VIEWS, bind, entropy, make_views, retrieve, strong_label_sets, to_pixels
from PIL import Image

import mltta

PHOTO = Path(__file__).parent / "photos" / "kitchen.jpg"
METHODS = ("clip", "tpt", "ml-tta")
#: views whose captions and label sets are shown, captions of each, and labels of the scores
SHOWN, CAPTIONS, LABELS = 3, 3, 8


def main(photo: str = str(PHOTO), names: str = "coco", picture: str = "paper.png") -> None:
    """Print the steps and draw them."""
    backbone, labels = mltta.load_backbone("mini", device="cpu"), mltta.LabelSet.of(names)
    image, wants = Image.open(photo).convert("RGB"), backbone.preprocess
    views = make_views(image, VIEWS, wants.size)
    features = backbone.encode_images(to_pixels(views, wants.mean, wants.std))  # (N, D)
    print(f"1. {VIEWS} views of {photo}: the photo, and random crops\n")

    base = mltta.default_captions(backbone)
    sets = strong_label_sets(base.texts, labels)
    named = [i for i, own in enumerate(sets) if own]
    nearest = retrieve(features, torch.from_numpy(base.embeddings[named]), CAPTIONS_PER_VIEW)  # (N, K)
    sizes = torch.tensor([len(sets[i]) for i in named])
    weak = sizes[nearest[:, 0]]  # (N,)
    logits = backbone.logit_scale * features @ backbone.encode_labels(labels).features.T  # (N, C)
    sure = [0, *(i for i in entropy(bind(logits, weak)).argsort().tolist() if i)][:SHOWN]
    print(
        f"2. {CAPTIONS_PER_VIEW} captions for each view, of {len(named):,}; a caption's strong label set: what it"
    )
    print("   names; a view's weak label set: its likeliest labels, as many as its nearest caption names\n")
    for view in sure:
        likeliest = logits[view].topk(int(weak[view])).indices.tolist()
        print(f"   view {view}: weak label set {{{', '.join(labels.names[i] for i in likeliest)}}}")
        for row in nearest[view, :CAPTIONS].tolist():
            said = ", ".join(sorted(labels.names[i] for i in sets[named[row]]))
            print(f"      {base.texts[named[row]]}  {{{said}}}")
    print(
        "\n3. One step: the bound entropies of the surest views and captions are minimized, each by its prompt\n"
    )

    made = [mltta.create_method(name, backbone, labels) for name in METHODS]
    spec = made[-1].needs[0]
    encoded = mltta.encode_images(backbone, [photo], [spec])
    share = {one.name: one.probabilities(one.branches(encoded))[0] for one in made}  # (C,) each
    best = share["ml-tta"].argsort(descending=True)[:LABELS].tolist()
    print("4. Probabilities\n")
    print(f"   {'label':<16}" + "".join(f"{name:>9}" for name in METHODS))
    for label in best:
        print(
            f"   {labels.names[label]:<16}" + "".join(f"{float(share[name][label]):9.3f}" for name in METHODS)
        )

    figure = plt.figure(figsize=(11, 4.2), layout="constrained")
    places = figure.subplot_mosaic(
        [["photo", "photo", "bars"], [*map(str, sure[1:]), "bars"]], width_ratios=[1, 1, 3]
    )
    for name, shown in {"photo": image, **{str(i): views[i] for i in sure[1:]}}.items():
        places[name].imshow(shown)
        places[name].set_title("photo" if name == "photo" else f"view {name}")
        places[name].axis("off")
    for i, name in enumerate(METHODS):
        spots = [row + 0.27 * (i - 1) for row in range(len(best))]
        places["bars"].barh(spots, [float(share[name][label]) for label in best], 0.25, label=name)
    places["bars"].set_yticks(range(len(best)), [labels.names[label] for label in best])
    places["bars"].invert_yaxis()
    places["bars"].set_xlabel("probability")
    places["bars"].legend()
    figure.savefig(picture, dpi=120)
    print(f"\nAs a picture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
