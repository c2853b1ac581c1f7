"""What one call, and all calls together, may ask of the server."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mltta.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    """Calls beyond a limit are refused with a sentence, before any work. docs/serve.md describes each limit."""

    images: int = 32
    image_bytes: int = 32 << 20
    body_bytes: int = 128 << 20
    megapixels: int = 60
    labels: int = 1000
    label_length: int = 200
    calls: int = 32
    bytes_in_flight: int = 512 << 20
    label_lists: int = 16
    seconds: int = 120
    head_seconds: int = 10
    body_seconds: int = 60

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ConfigError(f"--limit {field.name}: give a whole number of at least 1")

    @classmethod
    def of(cls, given: list[str]) -> Limits:
        """The default limits, some changed by NAME=VALUE.

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
