"""Prompts: templates, their learnable context as tokens, and the user's own sentences."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from mltta.errors import ConfigError, LabelError
from mltta.labels import LabelSet
from mltta.storage.reading import LABELS, explain, read_text, shown

DEFAULT_TEMPLATE = "a photo of a {}."
#: named sets of templates: open_clip's OPENAI_IMAGENET_TEMPLATES (80) and SIMPLE_IMAGENET_TEMPLATES (7)
TEMPLATE_SETS = ("openai", "simple")

#: one template, several, or the name of a set
TemplateSource: TypeAlias = str | Sequence[str]
#: sentences by label, or a JSON file of them
DescriptionSource: TypeAlias = Mapping[str, Sequence[str]] | str | os.PathLike[str]
_TWICE = "{}: label {!r} is described twice; put its sentences into one list"

log = logging.getLogger("mltta")


def split_template(template: str) -> tuple[str, str]:
    """Split "a photo of a {}." into the words before the label and those after it."""
    before, hole, after = template.partition("{}")
    if not hole or "{}" in after:
        raise ConfigError(
            f"a prompt template needs exactly one {{}} for the label; got {template!r}. "
            f"Named sets of templates: {' and '.join(TEMPLATE_SETS)}."
        )
    return before.strip(), after


def list_templates(template: TemplateSource) -> tuple[str, ...]:
    """List templates: the one given, those of a list, or those of a named set.

    >>> list_templates("simple")[0]
    'itap of a {}.'
    """
    if isinstance(template, str) and template in TEMPLATE_SETS:
        import open_clip  # slow import

        named = getattr(open_clip, f"{template.upper()}_IMAGENET_TEMPLATES")
        return tuple(fill("{}") for fill in named)
    if not template:
        raise ConfigError(f"no prompt template given; use one such as {DEFAULT_TEMPLATE!r}")
    several = isinstance(template, Sequence) and not isinstance(template, str)
    templates: tuple[Any, ...] = tuple(template) if several else (template,)
    for one in templates:
        if not isinstance(one, str):
            raise ConfigError(f"a prompt template must be a string with one {{}}; got {one!r}")
        split_template(one)
    return templates


def token_ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text without start, end or padding, for open_clip and Hugging Face tokenizers."""
    if hasattr(tokenizer, "encode"):
        return list(tokenizer.encode(text))
    inner = getattr(tokenizer, "tokenizer", None)
    if inner is None:
        raise ConfigError(
            f"unsupported tokenizer {type(tokenizer).__name__}: prompts cannot be built with it"
        )
    return list(inner.encode(text, add_special_tokens=False))


class Descriptions(dict[str, tuple[str, ...]]):
    """Sentences by label name, validated against a label list; created by `load_descriptions`."""


def load_descriptions(source: DescriptionSource, labels: LabelSet) -> Descriptions:
    """Load sentences about labels, such as ``{"dog": ["a furry animal with a wet nose."]}``, from a dict or JSON file.

    Case and spacing of labels are ignored. Labels without sentences are listed in a warning; they use templates only.
    Descriptions that are already validated are returned unchanged.
    """
    if isinstance(source, Descriptions) and source.keys() <= set(labels.names):
        return source
    given: object = source
    where = "descriptions"
    if isinstance(source, (str, os.PathLike)):
        where, given = str(source), _read_json(Path(source))
    if not isinstance(given, Mapping):
        todo = 'give a mapping from labels to lists of sentences, such as {"dog": ["a furry animal."]}'
        raise LabelError(f"{where}: {todo}")
    found = Descriptions()
    for label, sentences in given.items():
        try:
            name = labels.names[labels.index(str(label))]
        except LabelError as error:
            raise LabelError(f"{where}: {error}") from None
        if name in found:
            raise LabelError(_TWICE.format(where, name))
        found[name] = _sentences(sentences, f"{where}: label {name!r}")
    missing = [name for name in labels if name not in found]
    if missing:
        some = ", ".join(missing[:5]) + (", …" if len(missing) > 5 else "")
        said = "%s: %d of %d labels have no descriptions (%s); they use templates only"
        log.warning(said, where, len(missing), len(labels), some)
    return found


def check_lengths(tokenizer: Any, descriptions: Descriptions, room: int) -> None:
    """Refuse sentences with more tokens than the text tower takes, as `build_prompts` does for labels."""
    for name, sentence in ((name, sentence) for name, own in descriptions.items() for sentence in own):
        if (count := len(token_ids(tokenizer, sentence))) > room:
            raise LabelError(
                f"a description of label {name!r} is too long: {sentence[:60]!r} has {count} tokens, "
                f"but this model takes at most {room}. Shorten it."
            )


def _sentences(value: object, where: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise LabelError(f"{where}: descriptions must be a list of sentences, not {shown(value)}")
    if not value:
        raise LabelError(f"{where}: the list of descriptions is empty; add a sentence or remove the label")
    for sentence in value:
        if not isinstance(sentence, str) or not sentence.strip():
            raise LabelError(f"{where}: a description must be a sentence, not {shown(sentence)}")
    return tuple(" ".join(sentence.split()) for sentence in value)


def _read_json(path: Path) -> Any:
    """Read a JSON file; duplicate keys are an error, because json would keep only the last."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        content = dict(pairs)
        if len(content) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise LabelError(_TWICE.format(path, twice))
        return content

    try:
        return json.loads(read_text(path, LABELS, LabelError), object_pairs_hook=once)
    except FileNotFoundError:
        raise LabelError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise LabelError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # not UTF-8, or not JSON
        raise LabelError(f"{path}: not valid JSON in UTF-8: {explain(error)}") from None
