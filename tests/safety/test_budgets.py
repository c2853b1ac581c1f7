"""What one image may cost, and that genuine photos stay below it."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mltta import Tagger
from mltta.captions.read import read_texts
from mltta.errors import CaptionError, ImageError
from mltta.images.decode import load_image
from tests.safety.world import LABELS, backbone, captions, dataset, photo, run


def png(wide: int, tall: int) -> bytes:
    """A PNG of zeros, made without making its pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    packer = zlib.compressobj(9)
    row, body = bytes(1 + (wide + 7) // 8), b""
    for _ in range(tall):
        body += packer.compress(row)
    body += packer.flush()
    head = struct.pack(">IIBBBBB", wide, tall, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def jpeg(image: Image.Image, **options: object) -> bytes:
    held = io.BytesIO()
    image.save(held, "JPEG", **options)
    return held.getvalue()


def with_scans(image: Image.Image, count: int) -> bytes:
    """A progressive JPEG whose last scan is there so many times more."""
    data = jpeg(image, progressive=True, quality=50)
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last * count + data[-2:]


def test_a_line_of_a_hundred_million_pixels_costs_its_own_tags_and_not_the_folders(tmp_path):
    (tmp_path / "a.png").write_bytes(png(120_000_000, 1))
    photo(1).save(tmp_path / "b.png")
    line, good = Tagger(backbone(), LABELS, "clip", captions=captions())(
        [tmp_path / "a.png", tmp_path / "b.png"]
    )
    assert "over the limit of 100,000 pixels per side; make it smaller first" in line.error
    assert good.error is None
    assert len(good) == len(LABELS)


def test_thousands_of_scans_are_refused_at_once():
    start = time.monotonic()
    with pytest.raises(
        ImageError, match=r"in 5,0\d\d scans is over the limit of what can be decoded in seconds"
    ):
        load_image(with_scans(Image.new("L", (2000, 1500), 128), 5000))
    assert time.monotonic() - start < 2


def test_scans_in_a_film_behind_the_picture_do_not_count():
    data = jpeg(photo(0, (4000, 3000)), quality=80)
    film = np.random.default_rng(0).integers(0, 256, 5 << 20, np.uint8).tobytes() + b"\xff\xda" * 1000
    assert load_image(data + film).size == (4000, 3000)


def test_a_jpeg_with_a_thousand_pieces_of_exif_is_refused_at_once():
    data = jpeg(photo(0))
    piece = b"\xff\xe1" + struct.pack(">H", 65002) + b"Exif\0\0" + bytes(64994)
    start = time.monotonic()
    with pytest.raises(ImageError, match="segments before the image"):
        load_image(data[:2] + piece * 500 + data[2:])
    assert time.monotonic() - start < 2


def test_a_tiff_of_a_million_strips_is_refused_at_once():
    rows = 1_000_000
    entries = [(256, 3, 1, 1), (257, 4, 1, 90_000), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    entries += [(273, 4, rows, 8), (277, 3, 1, 1), (278, 4, 1, 1), (279, 4, rows, 8)]
    data = b"II*\0" + struct.pack("<I", 8 + 4 * rows) + struct.pack("<I", 1) * rows
    data += struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", *e) for e in entries) + bytes(4)
    start = time.monotonic()
    with pytest.raises(ImageError, match="1,000,000 values for tag 273"):
        load_image(data)
    assert time.monotonic() - start < 2


@pytest.mark.parametrize(("kind", "count"), [("PNG", 200_000), ("GIF", 200_000)])
def test_a_file_in_hundreds_of_thousands_of_pieces_is_refused(kind, count):
    held = io.BytesIO()
    photo(0).convert("P").save(held, kind)
    data = held.getvalue()
    chunk = struct.pack(">I", 0) + b"prVt" + struct.pack(">I", zlib.crc32(b"prVt"))
    piece, at = (chunk, 33) if kind == "PNG" else (b"\x21\xfe\x01a\x00", data.index(b"\x2c\0\0\0\0"))
    with pytest.raises(ImageError, match="more than 100,000 pieces"):
        load_image(data[:at] + piece * count + data[at:])


def test_a_huge_webp_is_refused_by_its_header(tmp_path):
    held = io.BytesIO()
    Image.new("RGB", (12_000, 10_000)).save(held, "WEBP", lossless=True, quality=0, method=0)
    with pytest.raises(ImageError, match="12000x10000 is over the limit of 52 megapixels for WEBP"):
        load_image(held.getvalue())
    sparse = tmp_path / "sparse.webp"
    sparse.write_bytes(held.getvalue())
    os.truncate(sparse, 3 << 30)
    with pytest.raises(ImageError, match="its file of 3,221,225,472 bytes is over the limit"):
        load_image(sparse)
    os.truncate(sparse, 300 << 20)
    with pytest.raises(ImageError, match="bytes for WebP"):
        load_image(sparse)


@pytest.mark.parametrize("what", ["fifo", "device", "loop", "folder"])
def test_an_evaluation_looks_at_a_file_before_it_reads_it(tmp_path, what):
    data = dataset(tmp_path / "photos", 3)
    odd = data.images[1]
    odd.unlink()
    if what == "fifo":
        os.mkfifo(odd)
    elif what == "folder":
        odd.mkdir()
    else:
        odd.symlink_to("/dev/zero" if what == "device" else odd)
    start = time.monotonic()
    (result,) = run(data, ["clip"], tmp_path / "out").results
    assert list(result.failed) == ["photo1.png"]
    assert len(result.scored) == 2
    assert time.monotonic() - start < 20


def test_packed_captions_that_swell_are_refused_and_long_ones_are_not(tmp_path):
    import gzip

    bomb, good = tmp_path / "bomb.txt.gz", tmp_path / "good.txt.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as file:
        for _ in range(200):
            file.write(b"a" * (1 << 20))
    with pytest.raises(CaptionError, match=r"bomb\.txt\.gz decompresses to more than"):
        read_texts(bomb)
    with gzip.open(good, "wt") as file:
        file.writelines(f"A photo of {i} dogs.\n" for i in range(100_000))
    assert len(read_texts(good)) == 100_000


MEASURE = """
import os, sys, time
import torch
torch.set_num_threads(1)
from mltta import Tagger
from tests.safety.world import LABELS, backbone, captions
tagger = Tagger(backbone(), LABELS, "ml-tta", captions=captions())
for path in sys.argv[1:]:
    if os.fork() == 0:  # each image on its own: what one leaves behind is not the next one's
        open("/proc/self/clear_refs", "w").write("5")
        start = time.monotonic()
        tags = tagger(path)
        seconds = time.monotonic() - start
        peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
        print(path, len(tags), seconds, int(peak) * 1024, flush=True)
        os._exit(0)
    os.wait()
"""


def genuine(folder: Path, which: str) -> Path:
    """A photo as cameras, phones and scanners make them, by real encoders."""
    path = folder / which
    small = photo(3, (500, 400))
    if which == "panorama.jpg":
        small.resize((20_000, 5_000)).save(path, quality=85)
    elif which == "progressive.jpg":
        small.resize((6_000, 4_000)).save(path, quality=90, progressive=True)
    elif which == "huge-progressive.jpg":
        small.resize((12_000, 8_500)).save(path, quality=85, progressive=True)
    elif which == "frames.gif":
        frames = [photo(i % 7, (64, 48)).convert("P") for i in range(2000)]
        frames[0].save(path, save_all=True, append_images=frames[1:], duration=40)
    elif which == "scan.tiff":
        noise = np.random.default_rng(0).integers(0, 256, (4000, 5000, 3), np.uint8)
        Image.fromarray(noise).save(path)
        assert path.stat().st_size > 59_000_000
    elif which == "phone.webp":
        small.resize((8_160, 6_120)).save(path, quality=80, method=0)
    return path


def test_genuine_photos_are_tagged_in_seconds_below_two_gigabytes(tmp_path):
    kinds = (
        "panorama.jpg",
        "progressive.jpg",
        "huge-progressive.jpg",
        "frames.gif",
        "scan.tiff",
        "phone.webp",
    )
    paths = [str(genuine(tmp_path, which)) for which in kinds]
    command = [sys.executable, "-c", MEASURE, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [path for path, *_ in lines] == paths
    assert all(int(labels) == len(LABELS) for _, labels, _, _ in lines)
    assert all(float(seconds) < 30 for _, _, seconds, _ in lines), done.stdout
    assert all(int(memory) < 2e9 for *_, memory in lines), done.stdout


def test_a_memory_limit_of_the_system_is_one_images_error(tmp_path):
    path = genuine(tmp_path, "huge-progressive.jpg")
    script = (
        "import resource, sys\nfrom mltta.images.decode import load_image\nfrom mltta.errors import ImageError\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 2**20,) * 2)\n"
        "try:\n    load_image(sys.argv[1])\nexcept ImageError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
    )
    assert "not enough memory" in done.stdout or "damaged" in done.stdout, done.stderr
