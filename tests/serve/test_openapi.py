"""The API keeps what its own page (/openapi.json) promises; schemathesis makes the calls."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from tests.serve.running import serving

CHECKS = [not_a_server_error, status_code_conformance, response_schema_conformance]


def check(url: str, examples: int) -> int:
    """How many calls were made of all operations, right ones and wrong ones; each is answered as promised."""
    calm = settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        derandomize=True,
        phases=[Phase.generate],
    )
    made = 0
    for found in schemathesis.openapi.from_url(f"{url}/openapi.json").get_all_operations():
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try:
                cases = found.ok().as_strategy(generation_mode=mode)

                @calm
                @given(case=cases)
                def ask(case: schemathesis.Case) -> None:
                    nonlocal made
                    made += 1
                    case.call_and_validate(checks=CHECKS)

                ask()
            except Exception as error:
                if (
                    "Impossible to generate negative" not in str(error)
                    and type(error).__name__ != "Unsatisfiable"
                ):
                    raise
    return made


def test_a_few_calls_of_each_kind_are_answered_as_promised(url):
    assert check(url, 8) >= 40


@pytest.mark.soak
def test_many_calls_of_each_kind_are_answered_as_promised():
    with serving(("auto", "clip")) as url:
        assert check(url, 200) >= 600
