"""Phrases that read like a translation do not come back: standard terms instead (see CONTRIBUTING.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: pattern → what to write instead
PHRASES = {
    r"\b(go|goes|gone|going|went) on (with|where|until|as|behind|after)\b|\b(goes|gone) on\b": "resume, continue",
    r"\b(row|line|file|label|caption|view|thread|worker|photo|image)s? (an|a) (image|photo|picture|label|line|view"
    r"|class|second|machine|GPU|core)\b(?! (has|shows|takes|helps?|needs|can|is|time)\b)": "one row per image",
    r"\b[\d.,]+ (images?|photos?|views?|ms|seconds?|passes|labels?) an? (image|photo|second|machine|GPU)\b": "per",
    r"(?<!there )(?<!There )(?<!it )\b(is|was) no (?!longer\b|more\b|less\b|better\b|different\b|worse\b|slower\b"
    r"|faster\b|larger\b|smaller\b|earlier\b|match\b|effect\b)": "is not a",
    r"\b(could|can|cannot) (not )?be had\b|\bto be had\b": "is not available",
    r"\bnumbers are proved\b|\bproved without\b": "verified against",
    r"\b(plain )?twins?\b": "reference implementation",
    r"\b(from|above) \d[\d.]* on\b(?! \w+ (core|machine|CPU|GPU))": "at least 0.3",
    r"\bboth hold\b(?! )": "both limits apply",
    r"\bhow sure it is\b": "calibrated",
    r"\bin one sitting\b": "in one file",
    r"\bthe rooms\b|\bthe (front|back) door\b": "packages; public API",
    r"\bletters that nobody\b": "control characters",
    r"\bin the place of\b": "instead of",
    r"\bfault of mltta\b|\ba hole\b": "a bug in mltta",
    r"\bis had\b|\bare had\b": "is available",
    r"\bthat nobody took\b": "synthetic mixtures",
    r"\bthe same command (goes|behind)\b": "rerun the command to continue",
    r"\ba str is no\b": "expected a photo, got str",
    r"\bprices? (of|in|per) (passes|views?|ordinary|units|one|\d)|\bat the price\b|\bthe price of \d": "cost",
    r"\bsays? which of your\b": "tag",
    r"\bno score that is none\b": "scores are never NaN",
    r"\b(was|were) done before\b|\bdone before have\b": "were already done",
    r"\b(take|takes|taken|taking|takes them) back\b": "remove, undo",
    r"\bthose of others\b|\b(any|some)body else's\b": "other files",
    r"\bof ones that\b|\bwhat is (said|told)\b|\bwhat it is called\b": "name the thing",
    r"\bgive another (-|method|port|label|folder|name)": "choose another",
    r"\b(mend|mended) (it|or|the)\b": "repair",
    r"\brubbish\b": "invalid",
    r"\b(no|an) (address|file) that (pyarrow|mltta|anyone)\b": "cannot open",
    r"\bsee what there is\b|\bshows what there is\b|\b(labels|kinds|ones) there (are|is):": "list",
    r"\bthere (is|are) to be\b": "planned",
    r"\bwritten whole\b|\bwhole or not at all\b": "atomically",
    r"\bfault of ours\b": "a bug in mltta",
    r"\bwhoever (reads|started|tags|renders)\b": "caller, reader",
    r"\bwho wants quiet\b|\btold twice\b|\bsay it at once\b": "print",
}
READ = ("*.md", "docs/*.md", "examples/**/*.md", "training/*.md", ".github/**/*.md", "Makefile")
CODE = (
    "src/**/*.py",
    "src/**/*.html",
    "src/**/*.js",
    "src/**/*.md",
    "benchmarks/*.py",
    "training/*.py",
    "examples/*.py",
)
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in (*READ, *CODE)
    for path in ROOT.glob(pattern)
    if not path.name.endswith(".min.js")
)
#: sentences of other people, kept as they are
QUOTED = {"CODE_OF_CONDUCT.md"}


@pytest.mark.parametrize("file", [name for name in FILES if name not in QUOTED])
def test_no_phrase_of_the_list_is_used(file):
    text = " ".join(re.sub(r"\n\s*#:?\s", " ", (ROOT / file).read_text(encoding="utf-8")).split())
    found = [
        f"{file}: …{text[max(0, hit.start() - 30) : hit.end() + 30]}… → {instead}"
        for pattern, instead in PHRASES.items()
        for hit in re.finditer(pattern, text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "phrase",
    [
        "the same command goes on",
        "a row an image, not a label",
        "README.md is no image",
        "a file could not be had",
        "shown from 0.3 on",
        "tested against plain twins",
        "at the price of 8 views",
        "30 images a second",
    ],
)
def test_the_list_finds_what_it_is_for(phrase):
    assert any(re.search(pattern, phrase) for pattern in PHRASES)
