"""What one call, and all calls together, may ask of the server."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mltta.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """Whatever goes beyond is refused with a sentence, before work is done for it."""

    #: images in one call, bytes of one and of a whole call, millions of pixels
    images: int = 32
    image_bytes: int = 32 << 20
    body_bytes: int = 128 << 20
    megapixels: int = 60
    #: labels and further words for them in one call, and characters of one entry
    labels: int = 1000
    label_length: int = 200
    #: calls in flight, and bytes of all of them
    calls: int = 32
    bytes_in_flight: int = 512 << 20
    #: label lists whose features are kept
    label_lists: int = 16
    #: seconds until an answer, and for a client to send the head and the body of a call
    seconds: int = 120
    head_seconds: int = 10
    body_seconds: int = 60

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ConfigError(f"--limit {field.name}: give a whole number of at least 1")

    @classmethod
    def of(cls, given: list[str]) -> Limits:
        """The usual limits but for those given as NAME=VALUE.

        >>> Limits.of(["images=4"]).images
        4
        """
        names = [field.name for field in fields(cls)]
        values: dict[str, int] = {}
        for text in given:
            name, _, value = text.partition("=")
            if name not in names or not value.isdecimal():
                raise ConfigError(
                    f"--limit {text}: give NAME=NUMBER, where NAME is one of {', '.join(names)}"
                )
            values[name] = int(value)
        return cls(**values)
