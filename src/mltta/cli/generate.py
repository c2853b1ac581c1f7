"""`mltta captions generate`: generate captions with a language model, as the paper does."""

from __future__ import annotations

import os
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from mltta.cli.options import Options, option
from mltta.cli.progress import counted
from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.captions.generate.build import Generated
    from mltta.captions.generate.sampling import CaptionEngine
    from mltta.labels import LabelSet

ENDPOINT = "Endpoint"


class GenerateOptions(Options):
    """Generate captions for your labels with a language model, as the paper does.

    Each request asks for a short sentence with up to five labels; short answers that mention a label are kept.

    **Examples**

    - `mltta captions generate --labels coco --engine openai --model gpt-4o-mini --count 10000 --out coco.jsonl`
    - `mltta captions generate -l voc --engine openai --base-url http://localhost:8000/v1 --model any -o voc.jsonl`
    - `mltta captions generate --labels "dog, sofa, lamp" --engine composer --count 500 --out rooms.jsonl`

    **Engines**: openai is any server with OpenAI's chat completions API (llama.cpp, vLLM, Ollama, hosted services); the
    key is read from OPENAI_API_KEY. composer uses templates and needs no model.

    The run ends once `--count` captions are kept, or after `--attempts` requests.

    Runs are resumable: rerun the command to continue, or with a larger `--count` to add captions. Use
    the file with `--captions voc.jsonl`.

    **Exit code**: 0 enough captions, 1 too few after all attempts, 2 usage or engine error.
    """

    labels: str = option(MISSING, "coco, voc, nuswide, a label file, or 'dog, cat, sofa'.", "-l")
    engine: Literal["openai", "composer"] = option(MISSING, "Source of the captions.")
    out: Path = option(MISSING, "JSON Lines file; an existing one is resumed.", "-o")
    model: str | None = option(None, "Model name at the endpoint.", "-m")
    count: int = option(1000, "Number of captions to generate.", "-n", min=1)
    attempts: int | None = option(
        None, "Maximum number of requests.", min=1, show_default="four times --count"
    )
    cooccurrence: Path | None = option(
        None, "Label co-occurrence counts to draw labels from (docs/captions.md)."
    )
    seed: int = option(0, "Random seed for labels and, if the engine supports it, for texts.")
    base_url: str | None = option(
        None, "URL of the endpoint, usually ending in /v1.", panel=ENDPOINT, envvar="OPENAI_BASE_URL"
    )
    concurrency: int = option(8, "Concurrent requests.", panel=ENDPOINT, min=1)
    timeout: float = option(60.0, "Request timeout in seconds.", panel=ENDPOINT, min=0.1)
    retries: int = option(5, "Maximum number of retries per request.", panel=ENDPOINT, min=0)
    temperature: float = option(0.7, "Sampling temperature.", panel=ENDPOINT, min=0)
    max_tokens: int = option(96, "Maximum number of tokens per answer.", panel=ENDPOINT, min=1)


def generate(options: GenerateOptions) -> None:
    from mltta.captions.generate.build import generate_captions
    from mltta.captions.generate.sampling import Cooccurrence
    from mltta.labels import LabelSet

    labels, out, count = LabelSet.of(options.labels), options.out, options.count
    counts = None if options.cooccurrence is None else Cooccurrence.load(options.cooccurrence, labels)
    engine, how = open_engine(options, labels), options.chosen("attempts", "seed")
    try:
        with counted("captions", count) as progress:
            how |= {"cooccurrence": counts, "progress": progress}
            done = generate_captions(labels, engine, out, count, **how)
    except KeyboardInterrupt:
        typer.echo(f"interrupted; the answers are in {out}. Rerun the command to continue", err=True)
        raise typer.Exit(130) from None
    typer.echo("\n".join([*tell(done, labels), f"wrote {out}"]))
    if len(done.captions) < count:
        short = f"{len(done.captions):,} of {count:,} captions after {len(done.entries):,} attempts"
        typer.echo(f"{short}: rerun with a larger --attempts to continue", err=True)
        raise typer.Exit(1)


def open_engine(options: GenerateOptions, labels: LabelSet) -> CaptionEngine:
    """Return the client of the endpoint, or the template composer."""
    if options.engine == "composer":
        from mltta.captions.generate.sampling import ComposerEngine

        return ComposerEngine(labels)
    from mltta.captions.generate.endpoint import OPENAI, OpenAIEngine

    if options.model is None:
        raise ConfigError("--engine openai needs --model")
    how = options.chosen("temperature", "max_tokens", "concurrency", "timeout", "retries")
    key = os.environ.get("OPENAI_API_KEY")
    return OpenAIEngine(options.model, options.base_url or OPENAI, key=key, **how)


def tell(done: Generated, labels: LabelSet) -> list[str]:
    """Return lines about accepted and rejected answers, time and tokens."""
    from mltta.captions.nouns import label_matches

    kept, answers = len(done.captions), len(done.entries)
    named = set().union(*label_matches(done.captions, labels))
    naming = f"mentioning {len(named)} of {len(labels)} labels"
    said = [f"{kept:,} captions kept of {answers:,} answers ({kept / answers:.1%}), {naming}"]
    if done.rejected:
        said.append(f"  rejected: {', '.join(f'{n:,} {why}' for why, n in done.rejected.most_common())}")
    if not done.new:
        return [*said, "  no further requests were needed"]
    seconds = max(done.seconds, 1e-3)
    before = "" if done.new == answers else f", {answers - done.new:,} from earlier runs"
    said.append(f"  {done.new:,} answers in {seconds:.1f} s, {done.new / seconds:.2f}/s{before}")
    if any(done.tokens):
        question, answer = done.tokens
        said.append(f"  {question:,} prompt tokens, {answer:,} completion tokens, {answer / seconds:.0f}/s")
    return said
