"""Server under load, compared with `mltta tag` on the same photos: throughput, latency, and refused requests.

    python -m benchmarks.serve --clients 8 --seconds 60
    python -m benchmarks.serve --flood 200

"tag" is `mltta tag FOLDER -o tags.csv`, as reported in its summary, without start-up, before and after the server.
"served" counts requests with one photo each, sent by a separate process, so client and server share the machine.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PHOTOS = sorted((ROOT / "examples" / "photos").glob("*.jpg"))


def tag_rate(method: str, labels: str, photos: int) -> float:
    """Images per second of the command line."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "photos"
        folder.mkdir()
        for number in range(photos):
            shutil.copy(PHOTOS[number % len(PHOTOS)], folder / f"{number:04d}.jpg")
        command = [sys.executable, "-m", "mltta", "tag", folder, "--labels", labels, "--method", method]
        done = subprocess.run(
            [*command, "-o", Path(place) / "tags.csv"], capture_output=True, text=True, check=True
        )
    found = re.search(r"images tagged in (?:(\d+) min )?([\d.]+) s", done.stderr)
    if found is None:
        raise SystemExit(f"no time found in the summary:\n{done.stderr}")
    return photos / (60 * int(found[1] or 0) + float(found[2]))


def start(method: str, labels: str) -> tuple[str, subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "mltta",
        "serve",
        "--port",
        "0",
        "--quiet",
        "--labels",
        labels,
        "--method",
        method,
    ]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    line = running.stderr.readline()
    found = re.match(r"open (http://\S+)", line)
    if found is None:
        raise SystemExit(line + running.stderr.read())
    return found[1], running


def memory(process: int) -> float:
    """Memory of a process, in megabytes."""
    text = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+)", text)
    return int(found[1]) / 1024 if found else float("nan")


def load(url: str, clients: int, seconds: float) -> None:
    """Send requests without pause, in a separate process, and print the outcomes as JSON."""
    import httpx

    took: list[float] = []
    seen: Counter[str] = Counter()
    held = [photo.read_bytes() for photo in PHOTOS]
    end = time.monotonic() + seconds
    lock = threading.Lock()

    def ask(number: int) -> None:
        with httpx.Client(base_url=url, timeout=120) as http:
            while time.monotonic() < end:
                begun = time.monotonic()
                try:
                    answer = http.post("/v1/tag", files=[("images", ("a.jpg", held[number % len(held)]))])
                    entry = answer.json()
                    what = (
                        str(answer.status_code)
                        if answer.status_code != 200 or "labels" in entry["images"][0]
                        else "error"
                    )
                except httpx.HTTPError as error:
                    what = type(error).__name__
                with lock:
                    seen[what] += 1
                    took.append(time.monotonic() - begun)
                number += 1

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(clients)]
    begun = time.monotonic()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    print(json.dumps({"seen": seen, "seconds": time.monotonic() - begun, "took": took}))


def flood(url: str, calls: int) -> Counter[str]:
    """Send many requests at once."""
    import httpx

    seen: Counter[str] = Counter()
    gate = threading.Barrier(calls)
    lock = threading.Lock()
    held = PHOTOS[0].read_bytes()

    def ask() -> None:
        gate.wait()
        try:
            answer = httpx.post(f"{url}/v1/tag", files=[("images", ("a.jpg", held))], timeout=120)
            what = f"{answer.status_code}{' Retry-After' if 'retry-after' in answer.headers else ''}"
        except httpx.HTTPError as error:
            what = type(error).__name__
        with lock:
            seen[what] += 1

    threads = [threading.Thread(target=ask) for _ in range(calls)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--method", default="auto")
    parser.add_argument("--labels", default="coco")
    parser.add_argument("--photos", type=int, default=112, help="number of photos for mltta tag")
    parser.add_argument("--flood", type=int, default=0, metavar="CALLS")
    parser.add_argument("--url", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.url:
        load(asked.url, asked.clients, asked.seconds)
        return
    if asked.flood:
        url, running = start(asked.method, asked.labels)
        before = memory(running.pid)
        for _ in range(2):
            seen = dict(flood(url, asked.flood))
            print(f"{asked.flood} at once: {seen}, memory {before:.0f} -> {memory(running.pid):.0f} MB")
        running.terminate()
        print(f"ended with {running.wait()}")
        return
    rates = [tag_rate(asked.method, asked.labels, asked.photos)]
    url, running = start(asked.method, asked.labels)
    command = [sys.executable, "-m", "benchmarks.serve", "--url", url, "--clients", str(asked.clients)]
    done = subprocess.run(
        [*command, "--seconds", str(asked.seconds)], capture_output=True, text=True, check=True
    )
    held = memory(running.pid)
    running.terminate()
    running.wait()
    rates.append(tag_rate(asked.method, asked.labels, asked.photos))
    found = json.loads(done.stdout)
    took = sorted(found["took"])
    served = found["seen"].get("200", 0) / found["seconds"]
    tagged = statistics.mean(rates)
    print(f"tag     {rates[0]:.2f} and {rates[1]:.2f} images per second")
    print(
        f"served  {served:.2f} per second to {asked.clients} clients, {served / tagged:.2f} of tag: {found['seen']}"
    )
    middle, slow = (took[int(share * len(took))] for share in (0.5, 0.99))
    print(f"seconds per request: median {middle:.2f}, p99 {slow:.2f}; server memory {held:.0f} MB")


if __name__ == "__main__":
    main()
