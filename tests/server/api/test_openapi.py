"""Every route that /openapi.json names, with whatever its document allows and does not allow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from hearthd.server.app import create_app
from tests.conftest import few
from tests.patience import PATIENCE
from tests.server import fakes, templates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI

    from hearthd.server.services.language_service import LanguageService

# With tokens to fill in the middle: without them /infill answers 501.
LIBRARY = fakes.gemma_like(
    special=(*templates.CHATML_SPECIAL, "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def service() -> LanguageService:
    return fakes.fake_service(LIBRARY, template=templates.CHATML, slots=2, batch=2)


def document_of(app: FastAPI) -> schemathesis.BaseSchema:
    """The document of /openapi.json, from which schemathesis generates requests."""
    document = schemathesis.openapi.from_dict(app.openapi())
    # Its cases for each value of each field alone are thousands, and all routes share the fields.
    document.config.phases.coverage.enabled = False
    return document


@pytest.fixture(scope="module")
def document() -> schemathesis.BaseSchema:
    return document_of(create_app(fakes.pool(service())))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with fakes.running(service()) as client:
        yield str(client.base_url)


# It answers 501 to all.
@(schemathesis.pytest.from_fixture("document").exclude(path="/slots/{id}").parametrize())
@settings(
    max_examples=few(10).max_examples,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_generated_request_breaks_the_server(case: schemathesis.Case[Any], address: str) -> None:
    case.call_and_validate(base_url=address, timeout=PATIENCE, checks=CHECKS)
