"""What is read, each with whole files to begin from and a way to read a spoiled one."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import yaml
from PIL import Image
from safetensors.torch import save, save_file

from mltta.captions.read import read_texts
from mltta.captions.store import CaptionBase
from mltta.cli.settings import read_config, settings_of
from mltta.data.coco import load_coco
from mltta.data.own_folder import load_folder
from mltta.errors import MlttaError
from mltta.evaluation.comparison import by_dataset, comparison, lines
from mltta.evaluation.results import find_results
from mltta.images.decode import image_id, load_image
from mltta.images.specs import ViewSpec
from mltta.labels import LabelSet
from mltta.labels.synonyms import read_synonyms
from mltta.methods import list_methods, method_class
from mltta.model.learned_prompts import load_prompts, save_prompts
from mltta.model.prompts import load_descriptions
from mltta.model.weights import load
from mltta.session.cache import FeatureCache
from mltta.storage import checksums
from tests.fuzz import mutate
from tests.model.prompted import coop
from tests.safety import world

#: reads one spoiled file; MlttaError is an answer, any other exception is not
Case = Callable[[random.Random, Path], None]
MARKER = "MARKER"


class Code:
    """What a pickle would run."""

    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.marker,)


class Targets:
    """All targets, made once in a folder; a marker there means that code of a file has run."""

    def __init__(self, home: Path) -> None:
        self.home, self.marker = home, home / MARKER
        self.images = _pictures()
        world.captions().save(home / "base")
        (self.result,) = [
            one.folder for one in world.run(world.dataset(home / "photos", 4), ["clip"], home / "out").results
        ]
        save_prompts(coop(torch.randn(4, 64), model="tiny"), home / "p.safetensors")
        torch.save(world.state(), home / "w.pt")
        self.cases: dict[str, Case] = {
            "images": self.image,
            "model folders": self.folder,
            "weights": self.weights,
            "prompts": self.prompts,
            "caption bases": self.base,
            "feature caches": self.cache,
            "results": self.results,
            "labels": self.labels,
            "configs": self.config,
            "captions": self.captions,
            "datasets": self.dataset,
        }

    def image(self, rng: random.Random, place: Path) -> None:
        data = mutate.bytes_of(rng.choice(self.images), rng)
        (place / "image").write_bytes(data)
        image_id(load_image(place / "image"))

    def folder(self, rng: random.Random, place: Path) -> None:
        said = world.config()
        text = said["model_cfg"]["text_cfg"]
        if rng.random() < 0.3:
            text |= {"hf_tokenizer_name": "org/m", "tokenizer_kwargs": {"trust_remote_code": True}}
            (place / "own.py").write_text(f"import os\nos.mkdir({str(self.marker)!r})\n")
            (place / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["own.Own", null]}}')
        (place / "open_clip_config.json").write_bytes(mutate.json_of(said, rng))
        weights = save(world.state())
        if rng.random() < 0.2:
            weights = mutate.bytes_of(weights[:20_000], rng) + weights[20_000:]
        if rng.random() < 0.1:
            (place / "open_clip_pytorch_model.bin").write_bytes(pickle.dumps(Code(str(self.marker))))
        else:
            (place / "open_clip_model.safetensors").write_bytes(weights)
        load(str(place))

    def weights(self, rng: random.Random, place: Path) -> None:
        how = rng.randrange(4)
        file = place / ("w.safetensors" if how < 2 else "w.pt")
        if how == 0:
            state = world.state()
            name = rng.choice(sorted(state))
            value = rng.choice((float("nan"), float("inf"), 1e38))
            odd = (
                state[name] * value,
                torch.zeros(0),
                torch.zeros(3, 0),
                state[name].reshape(-1),
                torch.tensor(7),
            )
            save_file(state | {name: rng.choice(odd).contiguous()}, file)
        elif how == 1:
            data = save(world.state())
            file.write_bytes(mutate.bytes_of(data[:6000], rng) + data[6000:])
        elif how == 2:
            file.write_bytes(mutate.bytes_of((self.home / "w.pt").read_bytes(), rng))
        else:
            file.write_bytes(pickle.dumps({"state_dict": Code(str(self.marker))}, protocol=2))
        load(None, file, quick_gelu=True)

    def prompts(self, rng: random.Random, place: Path) -> None:
        file = place / "p.safetensors"
        whole = (self.home / "p.safetensors").read_bytes()
        if rng.random() < 0.5:
            file.write_bytes(mutate.bytes_of(whole, rng))
        else:
            shape = rng.choice(((4, 64), (0,), (2, 0), (3, 4, 64), (1, 1, 1, 1), ()))
            said = mutate.json_of({"format": "mltta-prompts-1", "labels": ["a"], "text_tower": "0"}, rng)
            names = rng.choice((("ctx",), ("ctx", "proj.weight", "proj.bias"), ("other",)))
            save_file(
                {name: torch.ones(shape) for name in names}, file, {"mltta": said.decode(errors="replace")}
            )
        learned = load_prompts(file)
        learned.check(world.backbone())
        world.backbone().encode_labels(world.LABELS, context=learned.for_labels(world.LABELS))

    def base(self, rng: random.Random, place: Path) -> None:
        shutil.copytree(self.home / "base", place, dirs_exist_ok=True)
        file = place / rng.choice(("config.json", "texts.txt", "embeddings.safetensors"))
        if file.suffix == ".json" and rng.random() < 0.7:
            said = mutate.json_of(json.loads(file.read_bytes()), rng)
            if rng.random() < 0.5:  # with a checksum that fits
                with contextlib.suppress(ValueError, RecursionError, TypeError, AttributeError):
                    said = json.dumps(checksums.sealed(json.loads(said))).encode()
            file.write_bytes(said)
        else:
            file.write_bytes(mutate.bytes_of(file.read_bytes(), rng))
        found = CaptionBase.load(place, world.backbone())
        found.nearest(world.captions().embeddings[0], 3)

    def cache(self, rng: random.Random, place: Path) -> None:
        shutil.copytree(self.home / "out" / "features", place, dirs_exist_ok=True)
        file = rng.choice(sorted(place.glob("*/*")))
        if file.suffix == ".json" and rng.random() < 0.7:
            file.write_bytes(mutate.json_of(json.loads(file.read_bytes()), rng))
        else:
            file.write_bytes(mutate.bytes_of(file.read_bytes(), rng))
        cache = FeatureCache(world.backbone(), ViewSpec(count=1), 0, place)
        for names in sorted(place.glob("*/*.images")):
            content = names.read_bytes()
            for at in range(0, len(content) - 15, 16):
                if cache.holds(content[at : at + 16]):
                    assert np.isfinite(cache.read(content[at : at + 16])).all()

    def results(self, rng: random.Random, place: Path) -> None:
        shutil.copytree(self.result, place / "r", dirs_exist_ok=True)
        file = rng.choice(sorted((place / "r").iterdir()))
        if file.name == "run.json" and rng.random() < 0.8:
            said = mutate.json_of(json.loads(file.read_bytes()), rng)
            with contextlib.suppress(ValueError, RecursionError, TypeError, AttributeError):
                said = json.dumps(checksums.sealed(json.loads(said))).encode()
            file.write_bytes(said)
        else:
            file.write_bytes(mutate.bytes_of(file.read_bytes(), rng))
        given = find_results([place])
        whole = [result for result in given if result.complete and len(result.scored)]
        for group in by_dataset(whole or given):
            comparison(lines(group, draws=2))

    def labels(self, rng: random.Random, place: Path) -> None:
        held = {"dog": ["hound"], "cat": [], "sofa": ["couch", "settee"]}
        kind = rng.choice(("txt", "json", "csv", "synonyms", "descriptions"))
        file = place / f"labels.{kind if kind in ('txt', 'csv') else 'json'}"
        text = {"txt": b"dog | hound\ncat\nsofa\n", "csv": b"label,n\ndog,1\ncat,2\n"}.get(kind)
        spoiled = mutate.json_of(held, rng) if text is None else mutate.text_of(text, rng)
        file.write_bytes(spoiled if rng.random() < 0.8 else mutate.bytes_of(spoiled, rng))
        if kind == "synonyms":
            read_synonyms(file)
        elif kind == "descriptions":
            load_descriptions(file, world.LABELS)
        else:
            LabelSet.of(str(file))

    def config(self, rng: random.Random, place: Path) -> None:
        name = rng.choice(list_methods())
        fields = {f.name: f.default for f in method_class(name).Config.__dataclass_fields__.values()}
        said = mutate.json_of({name: fields}, rng)
        if rng.random() < 0.5:
            plain = yaml.safe_dump({name: fields}).encode()
            said = mutate.text_of(plain, rng).replace(b"MARKER", str(self.marker).encode())
        (place / "config.yaml").write_bytes(said)
        settings = settings_of([name], (), read_config(place / "config.yaml", {"top_k": False})[1])
        method_class(name).Config.make(**settings[name])

    def captions(self, rng: random.Random, place: Path) -> None:
        rows = [{"caption": f"A dog and {i} cats."} for i in range(5)]
        kind = rng.choice(("txt", "jsonl", "json", "csv", "generated"))
        if kind == "json":
            data = mutate.json_of({"annotations": rows}, rng)
        elif kind == "generated":
            first = '{"format": "mltta-generated-1", "seed": 0}\n'
            row = {"n": 1, "keywords": ["dog"], "caption": "A dog.", "kept": True, "tokens": [1, 2]}
            data = first.encode() + mutate.json_of(row, rng) + b"\n"
            kind = "jsonl"
        else:
            text = "\n".join(map(json.dumps, rows)) if kind == "jsonl" else "caption,n\nA dog.,1\nA cat.,2\n"
            data = mutate.text_of(text.encode(), rng)
        if rng.random() < 0.3:
            data, kind = gzip.compress(data, 1), kind + ".gz"
            data = mutate.bytes_of(data, rng) if rng.random() < 0.5 else data
        (place / f"c.{kind}").write_bytes(data)
        read_texts(place / f"c.{kind}")

    def dataset(self, rng: random.Random, place: Path) -> None:
        for i in range(2):
            shutil.copy(self.home / "photos" / f"photo{i}.png", place / f"{i}.png")
        kind = rng.choice(("csv", "jsonl", "coco"))
        if kind == "coco":
            images = [{"id": i, "file_name": f"{i}.png"} for i in range(2)]
            things = [{"image_id": 0, "category_id": 1, "id": 5}, {"image_id": 1, "category_id": 2, "id": 6}]
            names = [{"id": 1, "name": "dog"}, {"id": 2, "name": "cat"}]
            held = {"images": images, "annotations": things, "categories": names}
            (place / "instances_val.json").write_bytes(mutate.json_of(held, rng))
            load_coco(place, annotations=place / "instances_val.json")
            return
        text = "image,labels\n0.png,dog|cat\n1.png,cat\n"
        if kind == "jsonl":
            text = '{"image": "0.png", "labels": ["dog"]}\n{"image": "1.png", "labels": []}\n'
        (place / f"labels.{kind}").write_bytes(mutate.text_of(text.encode(), rng))
        load_folder(place)


def _pictures() -> list[bytes]:
    """Real encodings of every format and kind that is read."""
    plain = world.photo(1, (61, 47))
    grey, alpha, palette = plain.convert("L"), plain.convert("RGBA"), plain.convert("P")
    deep = Image.fromarray(np.asarray(grey, np.uint16) * 257)
    more = [world.photo(i, (61, 47)) for i in range(3)]
    kinds: list[tuple[Image.Image, str, dict[str, object]]] = [
        (plain, "JPEG", {}),
        (plain, "JPEG", {"progressive": True, "exif": b"Exif\0\0MM\0*\0\0\0\x08\0\0"}),
        (plain.convert("CMYK"), "JPEG", {}),
        (grey, "JPEG", {"progressive": True}),
        (plain, "PNG", {}),
        (palette, "PNG", {"transparency": 3}),
        (deep, "PNG", {}),
        (alpha, "PNG", {}),
        (palette, "GIF", {}),
        (palette, "GIF", {"save_all": True, "append_images": [one.convert("P") for one in more]}),
        (plain, "WEBP", {}),
        (alpha, "WEBP", {"lossless": True}),
        (plain, "WEBP", {"save_all": True, "append_images": more}),
        (plain, "BMP", {}),
        (palette, "BMP", {}),
        *[
            (plain, "TIFF", {"compression": how})
            for how in ("raw", "tiff_lzw", "tiff_adobe_deflate", "jpeg", "packbits")
        ],
        (grey.convert("F"), "TIFF", {}),
        (grey.convert("1"), "TIFF", {"compression": "group4"}),
    ]
    found = []
    for image, kind, options in kinds:
        held = io.BytesIO()
        image.save(held, kind, **options)
        found.append(held.getvalue())
    return found


__all__ = ["Case", "MlttaError", "Targets"]
