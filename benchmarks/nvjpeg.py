"""Throughput of JPEG decoding (12 megapixels) on an NVIDIA GPU (nvJPEG via torchvision) compared with all CPU cores.

python -m benchmarks.nvjpeg [--images 64]
"""

from __future__ import annotations

import argparse
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F
from torchvision.io import decode_jpeg

from benchmarks.folder import make_photos, rate
from mltta.images.decode import load_image
from mltta.images.geometry import scale_of

SIZE = (4000, 3000)


def on_gpu(files: list[torch.Tensor], batch: int) -> None:
    """Decode, and downscale to the working size."""
    for start in range(0, len(files), batch):
        for image in decode_jpeg(files[start : start + batch], device="cuda"):
            F.avg_pool2d(image[None].float(), scale_of(SIZE))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=64)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        data = [path.read_bytes() for path in make_photos(Path(folder), args.images, SIZE)]
        files = [torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in data]
        gpu = torch.device("cuda")

        def on_cores() -> None:
            list(pool.map(lambda one: load_image(one, working=True), data))

        on_cores()
        cores = rate(on_cores, len(data), gpu)
        print(f"all cores, at the working size: {cores:.0f} images per second")
        for batch in (1, 8, 32):
            on_gpu(files, batch)
            found = rate(partial(on_gpu, files, batch), len(data), gpu)
            print(f"nvJPEG, batch of {batch}: {found:.0f} images per second")
        ours = np.asarray(load_image(data[0])).astype(int)
        theirs = decode_jpeg(files[0], device="cuda").cpu().permute(1, 2, 0).numpy().astype(int)
        apart = np.abs(ours - theirs)
        print(
            f"differing values: {(apart > 0).mean():.3f}, mean difference {apart.mean():.3f}, maximum {apart.max()}"
        )


if __name__ == "__main__":
    main()
