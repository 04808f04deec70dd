"""An error in a front or a replica ends the request or the bundle in which it occurs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pytest

from hearthd.server.engine.generation import Failed
from hearthd.server.errors import GenerationFailed
from hearthd.server.settings import Settings
from tests.cluster.fake_bundles import FakeBundles
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("ray", reason="needs Ray: pip install 'hearthd[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore")  # of the import of Ray

PANIC = BaseException("injected")  # as a panic of a library in another language: no Exception


def with_front(test: Callable[[Any], Any], kind: str) -> Any:
    """Run a coroutine with a front's worker, whose replicas cannot be reached."""
    from hearthd.server.cluster.remote_calls import RemoteCalls
    from hearthd.server.cluster.remote_engine import RemoteEngine

    async def run() -> Any:
        handle = mock.MagicMock()
        handle.options.return_value = handle
        handle.generate.remote.side_effect = handle.call.remote.side_effect = PANIC
        workers: dict[str, Any] = {"engine": RemoteEngine, "calls": RemoteCalls}
        worker = workers[kind](handle, FakeBundles().describe(), queue_limit=1)
        worker._admission.slots = 1
        with mock.patch.object(worker, "_count_slots"):
            answer = await asyncio.wait_for(test(worker), PATIENCE)
        await asyncio.sleep(0)
        assert worker.idle
        return answer

    return asyncio.run(run())


def test_a_request_whose_front_panics_gets_an_error() -> None:
    async def ask(engine: Any) -> list[Any]:
        request = FakeBundles().request({"prompt": [5, 6], "max_tokens": 2}, 1)
        with engine.submit(request) as generation:
            return [event async for events in generation.batches() for event in events]

    assert with_front(ask, "engine") == [Failed("a model replica failed: BaseException")]


def test_a_call_whose_front_panics_gets_an_error() -> None:
    async def ask(calls: Any) -> Any:
        return await calls.submit("root", {"x": np.zeros(4, np.float32)})

    with pytest.raises(GenerationFailed, match="a model replica failed: BaseException"):
        with_front(ask, "calls")


def test_an_error_of_an_unload_does_not_fail_the_load_of_another_bundle() -> None:
    from hearthd.server.cluster.model_replica import LoadedBundle

    service = FakeBundles().open_model(FakeBundles().describe())
    loaded = LoadedBundle(service, mock.Mock())
    with mock.patch.object(service, "stop", side_effect=PANIC) as stop:
        loaded.__del__()
    stop.assert_called_once()
    asyncio.run(service.stop())


def test_a_replica_that_ends_stops_every_engine() -> None:
    from hearthd.server.cluster.model_replica import ModelReplica

    settings = Settings.model_validate({"bundle": "/nowhere"})
    replica: Any = ModelReplica(FakeBundles(), settings, [], max_bundles=2)
    services = [mock.Mock(stop=mock.AsyncMock(side_effect=PANIC)) for _ in range(2)]
    replica._services = {str(index): service for index, service in enumerate(services)}
    asyncio.run(ModelReplica.__del__(replica))
    for service in services:
        service.stop.assert_called_once()
