from __future__ import annotations

from collections.abc import Iterator

import pytest

from mltta.serve.client import Client
from tests.serve.running import serving


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    with serving() as address:
        yield address


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url, retries=0) as made:
        yield made
