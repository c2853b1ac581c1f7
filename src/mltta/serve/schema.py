"""The requests and answers of the API, as /openapi.json describes them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

_REF = "#/components/schemas/{model}"
_EXAMPLE: Any = {
    "images": [{"name": "kitchen.jpg", "data": "/9j/4AAQSkZJRgABAQ…"}],
    "labels": ["cup", "table", "cat | kitty"],
    "method": "auto",
    "where": True,
}


class Strict(BaseModel):
    """Refuses unknown fields: a misspelt field is an error and not a default."""

    model_config = ConfigDict(extra="forbid")


class ImageIn(Strict):
    """An image: its file as base64, or, if the server allows it, an address."""

    name: Annotated[str, Field(max_length=1000, description="Its name in the answer.")] = ""
    data: Annotated[str | None, Field(description="The file as base64.")] = None
    url: Annotated[str | None, Field(max_length=2000, description="http:// or https://")] = None


class TagCall(Strict):
    """Images, the labels to choose from, and the method."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    images: Annotated[list[ImageIn], Field(min_length=1)]
    labels: Annotated[
        list[str] | str | None,
        Field(description="A list, with synonyms as in 'cat | kitty', or the name of a set."),
    ] = None
    model: Annotated[str | None, Field(description="One of /v1/models.")] = None
    method: Annotated[str | None, Field(description="One of /v1/methods.")] = None
    settings: Annotated[
        dict[str, bool | int | float | str], Field(description="Settings that /v1/methods lists.")
    ] = Field(default_factory=dict)
    top_k: Annotated[int | None, Field(ge=1, le=10**6, description="Show at most this many labels.")] = None
    threshold: Annotated[
        float | None, Field(ge=0, le=1, description="Show labels that score at least this (default: 0.3).")
    ] = None
    all: Annotated[bool, Field(description="List all labels, best first, not only those present.")] = False
    where: Annotated[bool, Field(description="Also tell where each label present was found.")] = False
    captions: Annotated[bool, Field(description="Also list captions of similar pictures per label.")] = False


#: what a form sends besides images
FIELDS = [name for name in TagCall.model_fields if name != "images"]


class Label(BaseModel):
    """A label and its calibrated score from 0 to 1."""

    label: str
    score: Annotated[float, Field(ge=0, le=1)]


class Heat(BaseModel):
    """How much each part of a photo speaks for a label, row by row from the top left; the highest value is 255."""

    rows: int
    columns: int
    heat: list[int]


class Caption(BaseModel):
    """A caption of another picture that mentions a label, and its similarity to the photo."""

    text: str
    similarity: float


class ImageOut(BaseModel):
    """The labels of an image, or why there are none."""

    image: str
    error: str | None = None
    note: Annotated[str | None, Field(description="Why no label is shown, if none is.")] = None
    present: Annotated[list[str] | None, Field(description="The labels shown, best first.")] = None
    labels: Annotated[list[Label] | None, Field(description="Those present, or all if asked for.")] = None
    where: dict[str, Heat] | None = None
    captions: dict[str, list[Caption]] | None = None
    ms: Annotated[float | None, Field(description="Its share of the time that its batch took.")] = None


class TagAnswer(BaseModel):
    """One entry per image, in order."""

    model: str
    method: str
    labels: Annotated[int, Field(description="How many there were to choose from.")]
    images: list[ImageOut]
    seconds: Annotated[
        float, Field(description="From the last byte of the call to the answer, with waiting.")
    ]


class ExportCall(Strict):
    """Answers to write as a file."""

    format: Literal["csv", "json", "xmp"]
    images: Annotated[list[ImageOut], Field(max_length=100_000)]
    wide: Annotated[bool, Field(description="csv: one row per image instead of one row per label.")] = False


class ErrorOut(BaseModel):
    """What is wrong, in a sentence."""

    error: str


#: of the bodies that are read by hand, and which FastAPI does not see
_, _SCHEMA = models_json_schema([(TagCall, "validation"), (ExportCall, "validation")], ref_template=_REF)
SCHEMAS: dict[str, Any] = _SCHEMA["$defs"]


def body(kind: type[BaseModel], form: bool = False) -> dict[str, Any]:
    """The body of a call for /openapi.json: JSON, or also a form."""
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": _REF.format(model=kind.__name__)}}}
    if form:
        # a form sends files, and text for what JSON nests
        text = {"labels": "Also one label per line, or commas between them.", "settings": "A JSON object."}
        fields = {
            **SCHEMAS[kind.__name__]["properties"],
            "images": {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1},
            **{name: {"type": "string", "description": said} for name, said in text.items()},
        }
        for name, field in fields.items():  # a field of a form has no null
            if "anyOf" in field:
                rest = {key: value for key, value in field.items() if key not in ("anyOf", "default")}
                fields[name] = field["anyOf"][0] | rest
        fields["settings"]["example"] = '{"effort": "fast"}'
        schema = {"type": "object", "properties": fields, "additionalProperties": False}
        content = {"multipart/form-data": {"schema": {**schema, "required": ["images"]}}, **content}
    return {"requestBody": {"required": True, "content": content}}
