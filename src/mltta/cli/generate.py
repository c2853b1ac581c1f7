"""`mltta captions generate`: the paper's text description base, written by a language model."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mltta.cli.progress import bar_on_terminal
from mltta.errors import ConfigError

if TYPE_CHECKING:
    from mltta.captions.generate.asking import Engine
    from mltta.captions.generate.build import Generated
    from mltta.labels import LabelSet

HELP = """Write captions for your labels, as the paper does: draw up to five labels, ask a language model for a
sentence of less than 15 words with them, keep the sentences that are short and name a label.

**Examples**

`mltta captions generate --labels coco --engine openai --model gpt-4o-mini --count 10000 --out coco.jsonl`

`mltta captions generate --labels voc --engine openai --base-url http://localhost:8000/v1 --model any --out voc.jsonl`

`mltta captions generate --labels "dog, sofa, lamp" --engine composer --count 500 --out rooms.jsonl`

**Engines**: openai is any server with OpenAI's chat completions (llama.cpp, vLLM, Ollama, hosted ones); its key is
read from the environment variable OPENAI_API_KEY. composer uses templates, without a model.

`--count` is how many captions to keep; asking ends there, or after `--attempts` questions.

Every answer is written as it arrives. Stopped or killed, the same command goes on where it stopped; a larger `--count`
adds to the file. `--captions voc.jsonl` of other commands takes what was kept.

**Exit code**: 0 enough captions, 1 attempts used up before, 2 wrong usage or an engine that fails.
"""


class EngineName(str, Enum):
    openai = "openai"
    composer = "composer"


def generate(
    labels: Annotated[
        str, typer.Option("--labels", "-l", help="coco, voc, nuswide, a label file, or 'dog, cat, sofa'.")
    ],
    engine: Annotated[EngineName, typer.Option(help="Who writes.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="JSON Lines file; one that exists is continued.")],
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Name of the model at the endpoint."),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Captions to keep.")] = 1000,
    attempts: Annotated[
        int | None,
        typer.Option(min=1, help="Sentences to ask for at most.", show_default="four times --count"),
    ] = None,
    cooccurrence: Annotated[
        Path | None,
        typer.Option(help="Draw labels as they occur together: a file of counts (docs/captions.md)."),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(envvar="OPENAI_BASE_URL", help="openai: the endpoint's address, mostly ending in /v1."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="openai: questions at once.")] = 8,
    timeout: Annotated[float, typer.Option(min=0.1, help="openai: seconds to wait for an answer.")] = 60.0,
    retries: Annotated[int, typer.Option(min=0, help="openai: further tries of what failed.")] = 5,
    temperature: Annotated[float, typer.Option(min=0, help="How freely the model chooses words.")] = 0.7,
    max_tokens: Annotated[int, typer.Option(min=1, help="Length of an answer at most.")] = 96,
    seed: Annotated[int, typer.Option(help="Chooses the labels, and the words where the engine can.")] = 0,
) -> None:
    from mltta.captions.generate.build import generate_captions
    from mltta.captions.generate.sampling import Cooccurrence
    from mltta.labels import LabelSet

    label_set = LabelSet.of(labels)
    counts = None if cooccurrence is None else Cooccurrence.load(cooccurrence, label_set)
    writer: Engine
    if engine is EngineName.openai:
        if model is None:
            raise ConfigError("--engine openai needs --model")
        from mltta.captions.generate.endpoint import OPENAI, OpenAIEngine

        writer = OpenAIEngine(
            model,
            base_url or OPENAI,
            key=os.environ.get("OPENAI_API_KEY"),
            temperature=temperature,
            max_tokens=max_tokens,
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
        )
    else:
        from mltta.captions.generate.asking import ComposerEngine

        writer = ComposerEngine(label_set)
    try:
        with bar_on_terminal() as bar:
            task = bar.add_task("captions", total=count)
            done = generate_captions(
                label_set,
                writer,
                out,
                count,
                attempts=attempts,
                seed=seed,
                cooccurrence=counts,
                progress=lambda kept: bar.update(task, completed=kept),
            )
    except KeyboardInterrupt:
        typer.echo(f"interrupted; the answers are in {out}, the same command goes on from here", err=True)
        raise typer.Exit(130) from None
    for line in tell(done, label_set):
        typer.echo(line)
    typer.echo(f"wrote {out}")
    if len(done.captions) < count:
        typer.echo(
            f"{len(done.captions):,} of {count:,} captions after {len(done.entries):,} attempts: "
            "a larger --attempts goes on from here",
            err=True,
        )
        raise typer.Exit(1)


def tell(done: Generated, labels: LabelSet) -> list[str]:
    """What was kept, what was not and why, and what it took, in sentences."""
    from mltta.captions.nouns import label_matches

    kept, answers = len(done.captions), len(done.entries)
    named = {label for labels_of in label_matches(done.captions, labels) for label in labels_of}
    said = [
        f"{kept:,} captions kept of {answers:,} answers ({kept / answers:.1%}), "
        f"naming {len(named)} of {len(labels)} labels"
    ]
    reasons = [f"{n:,} {why}" for why, n in done.rejected.most_common()]
    said += [f"  not kept: {', '.join(reasons)}"] if reasons else []
    if not done.new:
        return [*said, "  nothing was left to ask"]
    seconds = max(done.seconds, 1e-3)
    before = "" if done.new == answers else f", {answers - done.new:,} were there before"
    said.append(f"  {done.new:,} answers in {seconds:.1f} s, {done.new / seconds:.2f}/s{before}")
    if any(done.tokens):
        question, answer = done.tokens
        rate = answer / seconds
        said.append(f"  {question:,} tokens asked, {answer:,} tokens answered, {rate:.0f}/s")
    return said
