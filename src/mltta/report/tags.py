"""How tags are written: a table for people, JSON, JSON Lines and CSV for programs."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from mltta.errors import MlttaError
from mltta.tagger import Tags


class Writer:
    """Writes tags as they come; a context manager around a screen or a file.

    Without ``top_k`` or ``threshold`` the labels judged present are written, with their scores.
    """

    def __init__(
        self, format: str, path: Path | None, top_k: int | None = None, threshold: float | None = None
    ):
        self.format, self.path, self.top_k, self.threshold = format, path, top_k, threshold
        self._count = 0

    def __enter__(self) -> Writer:
        try:
            self._file: TextIO = (
                sys.stdout if self.path is None else self.path.open("w", encoding="utf-8", newline="")
            )
        except OSError as error:
            raise MlttaError(f"{self.path} cannot be written: {error.strerror}") from error
        if self.format == "csv":
            # a screen makes the system's own line ends out of "\n"; a file has those that CSV asks for
            self._csv = csv.writer(self._file, lineterminator="\n" if self.path is None else "\r\n")
            self._csv.writerow(["image", "label", "score", "present", "error"])
        elif self.format == "json":
            self._file.write("[")
        return self

    def write(self, tags: Tags) -> None:
        """Write one image's tags, or its error."""
        getattr(self, f"_{self.format}_record")(tags)
        self._count += 1
        self._file.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.format == "json":
            self._file.write("\n]\n")
        if self.path is not None:
            self._file.close()

    def _shown(self, tags: Tags) -> list[dict[str, Any]]:
        if self.top_k is None and self.threshold is None:
            return [item for item in tags if item["label"] in tags.present]
        return tags.top(self.top_k, self.threshold)

    def _record(self, tags: Tags) -> dict[str, Any]:
        if tags.error is not None:
            return {"image": tags.image, "error": tags.error}
        return {"image": tags.image, "present": tags.present, "labels": self._shown(tags)}

    def _json_record(self, tags: Tags) -> None:
        text = json.dumps(self._record(tags), ensure_ascii=False, indent=1).replace("\n", "\n ")
        self._file.write(f"{',' if self._count else ''}\n {text}")

    def _jsonl_record(self, tags: Tags) -> None:
        self._file.write(json.dumps(self._record(tags), ensure_ascii=False) + "\n")

    def _csv_record(self, tags: Tags) -> None:
        if tags.error is not None:
            self._csv.writerow([tags.image, "", "", "", tags.error])
        shown = self._shown(tags)
        if not shown and tags.error is None:  # an image that shows none of the labels is an answer too
            self._csv.writerow([tags.image, "", "", "", ""])
        for item in shown:
            present = int(item["label"] in tags.present)
            self._csv.writerow([tags.image, item["label"], f"{item['score']:.6f}", present, ""])

    def _table_record(self, tags: Tags) -> None:
        if tags.error is not None:  # listed together at the end, where they are not overlooked
            return
        from rich.console import Console
        from rich.table import Table

        console = Console(file=self._file, highlight=False)
        console.print(tags.image, style="bold", markup=False, soft_wrap=True)
        shown = self._shown(tags)
        if not shown:
            console.print("  none of the labels", style="dim")
        table = Table(box=None, show_header=False, padding=(0, 1))
        for item in shown:
            bar = "█" * round(20 * item["score"])
            style = "bold" if item["label"] in tags.present else "dim"
            table.add_row(f"{item['score']:.2f}", bar, item["label"], style=style)
        if shown:
            console.print(table)
