"""The client of tests that only need a model which says anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.server.openai_servers import chatty, client_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import openai


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with client_of(chatty()) as client:
        yield client
