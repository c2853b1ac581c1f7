"""`mltta page`: the web page as static files."""

from __future__ import annotations

from pathlib import Path

import typer

from mltta.cli.options import Options, argument, option


class PageOptions(Options):
    """Write a web page that tags photos in the browser, without a server.

    `mltta page site`, then `python -m http.server -d site` and open http://127.0.0.1:8000

    Photos never leave the browser. Any web server can offer the folder. It downloads Pyodide and ONNX Runtime Web (50
    MB) and checks them.
    """

    folder: Path = argument("DIR", "Folder to write.")
    vendor: Path | None = option(
        None,
        "Folder with the files of Pyodide and ONNX Runtime Web, instead of downloading them.",
        metavar="DIR",
    )


def page(options: PageOptions) -> None:
    from mltta.serve.static_page import write_page

    write_page(options.folder, options.vendor)
    typer.echo(f"wrote {options.folder}: python -m http.server -d {options.folder}", err=True)
