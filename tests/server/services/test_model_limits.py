"""A number of models as the limit, and models that only /models/load loads."""

from __future__ import annotations

from tests.server import fakes
from tests.server.fake_models import FakeModel, complete, pool, statuses


def named(*names: str) -> list[FakeModel]:
    """Models of different bundles."""
    return [FakeModel(name=name, spread=2.0 + at) for at, name in enumerate(names)]


def test_a_number_of_models_is_a_limit_too() -> None:
    with fakes.running(pool(*named("a", "b", "c"), models_max=2)) as client:
        complete(client, "b")
        complete(client, "c")
        assert statuses(client) == {"a": "unloaded", "b": "loaded", "c": "loaded"}
        props = client.get("/props?model=c").json()
        assert (props["role"], props["max_instances"]) == ("router", 2)


def test_models_can_be_loaded_by_hand_alone() -> None:
    with fakes.running(pool(*named("a", "b"), autoload=False)) as client:
        body = {"model": "b", "prompt": "the dog", "max_tokens": 2}
        refused = client.post("/v1/completions", json=body)
        assert refused.status_code == 400
        assert "POST /models/load" in refused.json()["error"]["message"]
        assert statuses(client) == {"a": "loaded", "b": "unloaded"}
        assert client.post("/models/load", json={"model": "b"}).status_code == 200
        assert client.post("/v1/completions", json=body).status_code == 200
        assert client.get("/props?model=b").json()["models_autoload"] is False
