"""What goes in and comes out, as the API's own page (/openapi.json) tells it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_EXAMPLE: Any = {
    "images": [{"name": "kitchen.jpg", "data": "/9j/4AAQSkZJRgABAQ…"}],
    "labels": ["cup", "table", "cat | kitty"],
    "method": "auto",
    "where": True,
}


class Strict(BaseModel):
    """Refuses what it does not know: a misspelt field is an error and not a default."""

    model_config = ConfigDict(extra="forbid")


class ImageIn(Strict):
    """An image: its file as base64, or, where the server allows it, an address."""

    name: Annotated[str, Field(max_length=1000, description="What the answer calls it.")] = ""
    data: Annotated[str | None, Field(description="The file as base64.")] = None
    url: Annotated[str | None, Field(max_length=2000, description="http:// or https://")] = None


class TagCall(Strict):
    """What to look at, which labels to choose from, and how to look."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [_EXAMPLE]})

    images: Annotated[list[ImageIn], Field(min_length=1)]
    labels: Annotated[
        list[str] | str | None,
        Field(description="A list, with synonyms as in 'cat | kitty', or the name of a set."),
    ] = None
    model: Annotated[str | None, Field(description="One of /v1/models.")] = None
    method: Annotated[str | None, Field(description="One of /v1/methods.")] = None
    settings: Annotated[
        dict[str, bool | int | float | str], Field(description="What /v1/methods lets a call set.")
    ] = Field(default_factory=dict)
    top_k: Annotated[int | None, Field(ge=1, le=1_000_000, description="At most so many labels.")] = None
    threshold: Annotated[float | None, Field(ge=0, le=1, description="Labels from this score on.")] = None
    all: Annotated[bool, Field(description="All labels, best first.")] = False
    where: Annotated[bool, Field(description="Also where each label present was found.")] = False
    captions: Annotated[bool, Field(description="Also which captions spoke for it.")] = False


class Label(BaseModel):
    """A label and how sure the server is of it, from 0 to 1."""

    label: str
    score: float


class Heat(BaseModel):
    """How much each part of a photo speaks for a label, row by row from the top left: 255 where it does so most."""

    rows: int
    columns: int
    heat: list[int]


class Caption(BaseModel):
    """A caption that spoke for a label, and its similarity to the photo."""

    text: str
    similarity: float


class ImageOut(BaseModel):
    """What was found in an image, or why there is nothing."""

    image: str
    error: str | None = None
    present: list[str] | None = None
    labels: list[Label] | None = None
    where: dict[str, Heat] | None = None
    captions: dict[str, list[Caption]] | None = None
    ms: Annotated[float | None, Field(description="Its share of the time that its batch took.")] = None


class TagAnswer(BaseModel):
    """One entry an image, in the order they came."""

    model: str
    method: str
    labels: Annotated[int, Field(description="How many there were to choose from.")]
    images: list[ImageOut]
    seconds: Annotated[float, Field(description="From the call's last byte to its answer, waiting included.")]


class WrittenLabel(Strict):
    """A label to write down."""

    label: Annotated[str, Field(max_length=1000)]
    score: Annotated[float, Field(ge=0, le=1)]


class Written(BaseModel):
    """An entry of an answer, to be written down; what no file holds is passed over."""

    image: Annotated[str, Field(max_length=1000)]
    error: Annotated[str | None, Field(max_length=10_000)] = None
    present: list[Annotated[str, Field(max_length=1000)]] = Field(default_factory=list)
    labels: list[WrittenLabel] = Field(default_factory=list)


class ExportCall(Strict):
    """Answers to write as a file."""

    format: Literal["csv", "json", "xmp"]
    images: Annotated[list[Written], Field(max_length=100_000)]
    wide: Annotated[bool, Field(description="csv: a row an image, not a label.")] = False


class Problem(BaseModel):
    """What is wrong, in a sentence."""

    error: str


def tag_bodies() -> dict[str, Any]:
    """The two ways to send a call, for /openapi.json."""
    fields: dict[str, Any] = {
        "images": {"type": "array", "items": {"type": "string", "format": "binary"}, "minItems": 1},
        "labels": {
            "type": "string",
            "description": "One label a line or commas between them, 'cat | kitty'; or the name of a set.",
            "example": "cup, table, cat | kitty",
        },
        "model": {"type": "string", "example": "mini"},
        "method": {"type": "string", "example": "auto"},
        "settings": {"type": "string", "description": "A JSON object.", "example": '{"effort": "fast"}'},
        "top_k": {"type": "integer", "minimum": 1},
        "threshold": {"type": "number", "minimum": 0, "maximum": 1},
        **{name: {"type": "boolean", "default": False} for name in ("all", "where", "captions")},
    }
    form = {"type": "object", "properties": fields, "required": ["images"], "additionalProperties": False}
    return {
        "requestBody": {
            "required": True,
            "content": {
                "multipart/form-data": {"schema": form},
                "application/json": {"schema": {"$ref": "#/components/schemas/TagCall"}},
            },
        }
    }
