"""The list of models needs no API key; loading models does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearthd.server.app import Guards
from tests.server import fakes
from tests.server.fake_models import pool, statuses
from tests.server.services.test_model_pool import load, named, unload

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx


@pytest.fixture
def two() -> Iterator[httpx.Client]:
    with fakes.running(pool(*named("a", "b")), guards=Guards(api_keys=("a long key",))) as client:
        yield client


def test_the_list_is_public_and_loading_needs_a_key(two: httpx.Client) -> None:
    assert statuses(two) == {"a": "loaded", "b": "unloaded"}
    assert load(two, "b").status_code == 401
    assert unload(two, "a").status_code == 401
    for query in ("reload=1", "%72eload=1", "re%6Coad=1", "a=b&reload"):
        assert two.get(f"/models?{query}").status_code == 401
    two.headers["Authorization"] = "Bearer a long key"
    assert two.get("/models?reload=1").status_code == 200
    assert load(two, "b").status_code == 200
    assert load(two, "c").status_code == 404
    assert unload(two, "a").status_code == 200
    assert statuses(two) == {"a": "unloaded", "b": "loaded"}
