"""Request and response models of the API, as described in /openapi.json."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import models_json_schema

from mltta.labels.sets import MOST_LABELS
from mltta.serve.offer import MOST_IMAGES

_REF = "#/components/schemas/{model}"
_Names = Annotated[list[str], Field(max_length=MOST_LABELS)]
_EXAMPLE: Any = {
    "images": [{"name": "kitchen.jpg", "data": "/9j/4AAQSkZJRgABAQ…"}],
    "labels": ["cup", "table", "cat | kitty"],
    "method": "auto",
    "where": True,
}


class Strict(BaseModel):
    """Rejects unknown fields, so that a misspelt field is an error."""

    model_config = ConfigDict(extra="forbid")


class ImageIn(Strict):
    """An image: its file as base64, or a URL if the server allows it."""

    name: Annotated[str, Field(max_length=1000, description="Name of the image in the response.")] = ""
    data: Annotated[str | None, Field(description="The file, encoded as base64.")] = None
    url: Annotated[str | None, Field(max_length=2000, description="An http:// or https:// URL.")] = None


class TagCall(Strict):
    """Images, the labels to choose from, and the method."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    images: Annotated[list[ImageIn], Field(min_length=1, max_length=MOST_IMAGES)]
    labels: Annotated[
        _Names | str | None,
        Field(description="A list of labels, with synonyms as in 'cat | kitty', or a label set."),
    ] = None
    model: Annotated[str | None, Field(description="A model of /v1/models.")] = None
    method: Annotated[str | None, Field(description="A method of /v1/methods.")] = None
    settings: Annotated[
        dict[str, bool | int | float | str],
        Field(max_length=100, description="Settings of the method (see /v1/methods)."),
    ] = Field(default_factory=dict)
    top_k: Annotated[int | None, Field(ge=1, le=10**6, description="Show at most this many labels.")] = None
    threshold: Annotated[
        float | None, Field(ge=0, le=1, description="Show labels that score at least this (default: 0.3).")
    ] = None
    keywords_from: Annotated[
        float | None, Field(ge=0, le=1, description="Minimum score of keywords (default: 0.7).")
    ] = None
    language: Annotated[
        str | None, Field(max_length=20, description="Language of the labels in the response, such as de.")
    ] = None
    all: Annotated[bool, Field(description="Return all labels, best first, not only those shown.")] = False
    where: Annotated[bool, Field(description="Also return a heat map for each label shown.")] = False
    captions: Annotated[bool, Field(description="Also return captions of similar pictures per label.")] = (
        False
    )


#: form fields besides images
FIELDS = [name for name in TagCall.model_fields if name != "images"]


class Label(BaseModel):
    """A label and its calibrated score from 0 to 1."""

    label: str
    score: Annotated[float, Field(ge=0, le=1)]


_Scores = Annotated[list[Label], Field(max_length=MOST_LABELS)]


class Heat(BaseModel):
    """Heat map of a label, row by row from the top left; the highest value is 255."""

    rows: int
    columns: int
    heat: list[int]


class Caption(BaseModel):
    """A caption of another picture that mentions a label, and its similarity to the photo."""

    text: str
    similarity: float


class ImageOut(BaseModel):
    """The labels of an image, or an error."""

    image: str
    error: str | None = None
    note: Annotated[str | None, Field(description="Why no label is shown, if none is.")] = None
    present: Annotated[_Names | None, Field(description="The labels shown, best first.")] = None
    keywords: Annotated[
        _Names | None, Field(description="Of the labels shown, the keywords, as paths such as animal|dog.")
    ] = None
    labels: Annotated[_Scores | None, Field(description="The labels shown, or all if requested.")] = None
    where: dict[str, Heat] | None = None
    captions: dict[str, list[Caption]] | None = None
    ms: Annotated[float | None, Field(description="Share of the batch's time, in milliseconds.")] = None


class TagAnswer(BaseModel):
    """The results: one entry per image, in order."""

    model: str
    method: str
    labels: Annotated[int, Field(description="Number of labels to choose from.")]
    images: list[ImageOut]
    notes: Annotated[list[str], Field(description="What cannot be judged, or was translated.")]
    seconds: Annotated[float, Field(description="Time from the last byte of the request to the response.")]


class ExportCall(Strict):
    """Results to export as a file."""

    format: Literal["csv", "json", "xmp"]
    images: Annotated[list[ImageOut], Field(max_length=100_000)]
    wide: Annotated[bool, Field(description="csv: one row per image instead of one row per label.")] = False


class ErrorOut(BaseModel):
    """An error message."""

    error: str


#: schemas of bodies that are parsed manually and unknown to FastAPI
_, _SCHEMA = models_json_schema([(TagCall, "validation"), (ExportCall, "validation")], ref_template=_REF)
SCHEMAS: dict[str, Any] = _SCHEMA["$defs"]


def body(kind: type[BaseModel], form: bool = False) -> dict[str, Any]:
    """The OpenAPI description of a request body: JSON, optionally also a form."""
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": _REF.format(model=kind.__name__)}}}
    if form:
        # forms contain files, and text for nested JSON values
        text = {"labels": "Also labels separated by lines or commas.", "settings": "A JSON object."}
        fields = {
            **SCHEMAS[kind.__name__]["properties"],
            "images": {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1},
            **{name: {"type": "string", "description": said} for name, said in text.items()},
        }
        for name, field in fields.items():  # form fields have no null
            if "anyOf" in field:
                rest = {key: value for key, value in field.items() if key not in ("anyOf", "default")}
                fields[name] = field["anyOf"][0] | rest
        fields["settings"]["example"] = '{"effort": "fast"}'
        schema = {"type": "object", "properties": fields, "additionalProperties": False}
        content = {"multipart/form-data": {"schema": {**schema, "required": ["images"]}}, **content}
    return {"requestBody": {"required": True, "content": content}}
