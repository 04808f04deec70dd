"""An error of a connection, request, tick, task or signal ends nothing but itself."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import signal
import threading
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

import httpx
import pytest
from fastapi import FastAPI

from hearthd.server.errors import NotReloaded
from hearthd.server.fault_isolation import BackgroundTasks, contained
from hearthd.server.process import draining_server
from hearthd.server.process.client_timeouts import TimedConnection
from hearthd.server.process.draining_server import DrainingServer
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.model_pool import ModelPool
from hearthd.server.services.model_room import ModelRoom
from tests.by_day import first_by_day
from tests.patience import PATIENCE, wait_until
from tests.server import fakes
from tests.server.certificates import tls
from tests.server.generate_client import LIBRARY, answer

if TYPE_CHECKING:
    from collections.abc import Iterator


class Panic(BaseException):
    """What PyO3 raises when Rust code panics: no Exception."""


@pytest.fixture(scope="module", params=first_by_day(["https", "http"]))
def running(request: pytest.FixtureRequest) -> Iterator[tuple[DrainingServer, httpx.Client]]:
    """One server for all faults: each must find it as it was."""
    servers: list[DrainingServer] = []
    create = DrainingServer.__init__

    def keep(server: DrainingServer, *arguments: Any, **options: Any) -> None:
        create(server, *arguments, **options)
        servers.append(server)

    models = [
        fakes.deployed(fakes.fake_service(LIBRARY, name=name, slots=4, batch=4, context=256))
        for name in ("first", "second")
    ]
    for model in models:
        model.idle_timeout = 1000
    pool = ModelPool(models)
    security = tls() if request.param == "https" else None
    with (
        mock.patch.object(DrainingServer, "__init__", keep),
        mock.patch.object(draining_server, "_TICKS_PER_TRIM", 1),
        mock.patch.object(draining_server, "_TICKS_PER_SECOND", 1),
        fakes.running(pool, tls=security) as client,
    ):
        yield servers[0], client


def fail_once(monkeypatch: pytest.MonkeyPatch, where: str) -> threading.Event:
    """Let the next call of a function raise a panic; the event says that it did."""
    module, _, path = where.partition(":")
    owner: Any = importlib.import_module(module)
    *parts, name = path.split(".")
    for part in parts:
        owner = getattr(owner, part)
    working, failed = getattr(owner, name), threading.Event()

    def once(*arguments: Any, **options: Any) -> Any:
        if failed.is_set():
            return working(*arguments, **options)
        failed.set()
        raise Panic("injected")

    monkeypatch.setattr(owner, name, once)
    return failed


def ask(client: httpx.Client, **body: Any) -> str:
    """The answer to a request that may fail; empty if the connection is closed."""
    with contextlib.suppress(httpx.TransportError):
        return client.post("/generate", json={"prompt": "the dog", "max_tokens": 3, **body}).text
    return ""


FAULTS = [
    # uvicorn's hooks, and the ticks of the server and of its models
    "hearthd.server.services.model_pool:ModelPool.tick",
    "hearthd.server.services.model_pool:is_unused",
    "hearthd.server.services.deployment:Deployment.check_files",
    "hearthd.server.process.draining_server:free_memory",
    "hearthd.server.process.client_timeouts:TimedConnection.close_if_timed_out",
    # methods of the protocol and its factory, called by the event loop
    "hearthd.server.process.client_timeouts:TimedConnection.__init__",
    "hearthd.server.process.client_timeouts:TimedConnection.accepted",
    "hearthd.server.process.client_timeouts:TimedConnection.data_received",
    "hearthd.server.process.client_timeouts:TimedConnection.handle_events",
    "hearthd.server.process.client_timeouts:TimedConnection.on_response_complete",
    # tasks of requests, and the threads in which they read texts
    "hearthd.server.api.middleware.body_limits:_Body.receive",
    "hearthd.server.api.middleware.body_limits:_Body.keep",
    "hearthd.server.api.middleware.access_log:_write_line",
    "hearthd.text.tokenizer:Tokenizer.encode",
    "hearthd.server.completions.completion:Completion.pieces",
    "hearthd.server.metrics:LanguageMetrics.completed",
    "hearthd.server.services.deployment:Deployment.lease",
    # the engine's thread
    "hearthd.server.engine.engine:Engine._handle",
    "hearthd.server.engine.step:StepRunner._admit",
    "hearthd.server.engine.sequence:Sequence.take",
    "hearthd.sampling.sampler:Sampler.sample",
    "tests.fake_runtime:FakeRuntime.decode",
    "tests.fake_runtime:FakeRuntime.prefill",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_an_error_ends_nothing_else(
    running: tuple[DrainingServer, httpx.Client], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    _, client = running
    failed = fail_once(monkeypatch, fault)
    ends = time.monotonic() + PATIENCE
    while not failed.is_set():
        assert time.monotonic() < ends
        with httpx.Client(base_url=client.base_url, verify=False, timeout=PATIENCE) as other:
            ask(other, n=2, stream=True, model="first", cache_prompt=False)
    assert len(answer(client, max_tokens=3, model="first")["token_ids"]) == 3
    assert client.get("/health").json()["status"] == "ok"


def test_each_choice_of_a_panic_gets_an_error(
    running: tuple[DrainingServer, httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the client would wait for ever."""
    _, client = running
    fail_once(monkeypatch, "hearthd.server.completions.completion:Completion.pieces")
    assert "internal error" in ask(client, n=2, stream=True, model="first")
    fail_once(monkeypatch, "hearthd.text.tokenizer:Tokenizer.encode")
    assert "internal error" in ask(client, model="first")


@pytest.mark.parametrize("fault", ["reload", "unload", "stop"])
def test_a_background_task_that_fails_is_logged_and_ends_nothing_else(
    running: tuple[DrainingServer, httpx.Client],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: str,
) -> None:
    server, client = running
    pool: Any = server._pool
    monkeypatch.setattr("hearthd.server.fault_isolation._REPEAT_SECONDS", 0)
    if fault == "reload":
        failed = fail_once(monkeypatch, "hearthd.server.services.deployment:Deployment.reload")
        loop = server._loop
        assert loop is not None
        monkeypatch.setattr(server, "_had_terminal", False, raising=False)
        loop.call_soon_threadsafe(server._on_sighup)
    elif fault == "unload":
        failed = fail_once(monkeypatch, "hearthd.server.services.deployment:Deployment.unload")
        monkeypatch.setattr(
            "hearthd.server.services.model_pool.is_unused",
            lambda model: model.name == "second" and not failed.is_set(),
        )
    else:
        failed = fail_once(monkeypatch, "hearthd.server.services.service:Service.stop")
        later = fakes.fake_service(LIBRARY, name="second", context=256)
        second = pool.find("second")
        monkeypatch.setattr(second, "_open_bundle", lambda _reserved: later)
        assert server._loop is not None
        asyncio.run_coroutine_threadsafe(pool.reload(second), server._loop).result(PATIENCE)
    wait_until(failed.is_set)
    wait_until(lambda: "injected" in caplog.text)
    assert "Traceback" in caplog.text
    for model in ("first", "second"):
        assert len(answer(client, max_tokens=3, model=model)["token_ids"]) == 3


@pytest.mark.parametrize("step", first_by_day(["making room", "opening"]))
def test_a_load_that_panics_is_an_error_of_its_requests(
    running: tuple[DrainingServer, httpx.Client], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    server, client = running
    pool: Any = server._pool
    second = pool.find("second")
    assert client.post("/models/unload", json={"model": "second"}).is_success
    with monkeypatch.context() as fault:
        if step == "opening":
            fault.setattr(second, "_open_bundle", mock.Mock(side_effect=Panic("injected")))
        else:
            fault.setattr(ModelRoom, "make", mock.AsyncMock(side_effect=Panic("injected")))
        assert "injected" in ask(client, model="second")
        assert step != "opening" or "injected" in second.failure
    assert len(answer(client, max_tokens=3, model="first")["token_ids"]) == 3
    later = fakes.fake_service(LIBRARY, name="second", context=256)
    monkeypatch.setattr(second, "_open_bundle", lambda _reserved: later)
    second.failed_at = 0.0
    assert len(answer(client, max_tokens=3, model="second")["token_ids"]) == 3


def test_a_reload_that_panics_keeps_the_old_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = fakes.deployed(fakes.fake_service(LIBRARY))
    monkeypatch.setattr(deployment, "_open_bundle", mock.Mock(side_effect=Panic("injected")))
    with pytest.raises(NotReloaded, match="still serving the old bundle: injected"):
        asyncio.run(deployment.reload())


def test_a_start_that_cannot_be_announced_is_served() -> None:
    def closed() -> None:
        raise BrokenPipeError

    service = fakes.fake_service(LIBRARY)
    with fakes.running(service, on_start=closed) as client:
        answer(client, max_tokens=1)


def test_a_self_test_that_panics_fails_its_model_only() -> None:
    broken = fakes.fake_service(LIBRARY, name="broken")
    broken._self_test = mock.Mock(side_effect=Panic("injected"))
    models = [fakes.deployed(broken), fakes.deployed(fakes.fake_service(LIBRARY, name="works"))]
    with fakes.running(ModelPool(models)) as client:
        answer(client, max_tokens=1, model="works")
        assert "injected" in ask(client, model="broken")


@pytest.mark.parametrize("fault", ["drain", "cancel", "cancel all", "idle", "stop"])
def test_an_error_does_not_keep_a_server_from_its_end(
    monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "idle":
        monkeypatch.setattr(ModelPool, "idle", property(mock.Mock(side_effect=Panic("injected"))))
    elif fault == "cancel all":
        fail_once(monkeypatch, "hearthd.server.services.model_pool:ModelPool.cancel")
    else:
        monkeypatch.setattr(Deployment, fault, mock.Mock(side_effect=Panic("injected")))
    service = fakes.fake_service(LIBRARY)
    pool = fakes.pool(service)
    server = DrainingServer(FastAPI(), pool, shutdown_timeout=0.05)

    async def end() -> None:
        server._loop = asyncio.get_running_loop()
        server.config.load()
        server.handle_exit(signal.SIGTERM, None)
        await server.on_tick(1)
        await asyncio.sleep(0.06)
        assert await server.on_tick(1)
        await pool.stop()

    asyncio.run(end())


@pytest.mark.parametrize(
    ("turn", "step"),
    [
        ("start", "start"),
        ("tick", "check_files"),
        ("reload_all", "reload"),
        ("drain", "drain"),
        ("cancel", "cancel"),
        ("stop", "stop"),
    ],
)
def test_a_model_that_fails_does_not_skip_the_next_one(
    monkeypatch: pytest.MonkeyPatch, turn: str, step: str
) -> None:
    names = ("first", "second")
    pool = ModelPool([fakes.deployed(fakes.fake_service(LIBRARY, name=name)) for name in names])
    failing = mock.Mock(side_effect=Panic("injected"))
    for model in pool:  # and of no other pool, whose server runs meanwhile
        monkeypatch.setattr(model, step, failing)

    async def take_turn() -> None:
        if (waiting := getattr(pool, turn)()) is not None:
            await waiting

    asyncio.run(take_turn())
    assert failing.call_count == len(names)


def test_a_connection_that_cannot_be_aborted_keeps_no_other_one_open() -> None:
    server = DrainingServer(FastAPI(), mock.Mock())
    connections = [mock.Mock(spec=TimedConnection) for _ in range(2)]
    server.server_state.connections.update(connections)
    for connection in connections:
        connection.abort.side_effect = Panic("injected")
    server._abort_connections()
    for connection in connections:
        connection.abort.assert_called_once()


# The mechanism


def test_an_error_that_repeats_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        with contained("this test"):
            raise Panic("injected")
    assert caplog.text.count("this test failed; the server goes on") == 1
    assert caplog.text.count("Panic: injected") == 1


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_ends_work_on_purpose_ends_it(stop: type[BaseException]) -> None:
    with pytest.raises(stop), contained("this test"):
        raise stop


def test_a_background_task_raises_where_it_is_awaited(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise Panic("injected")

    async def run() -> None:
        tasks = BackgroundTasks()
        task = tasks.start("a task of this test", fail())
        await tasks.wait()
        with pytest.raises(Panic):
            await task

    asyncio.run(run())
    assert "a task of this test failed" in caplog.text
