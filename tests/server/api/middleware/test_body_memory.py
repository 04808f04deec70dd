"""The memory that the bodies of all requests share: who gets it, who waits and who is rejected."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from starlette.exceptions import HTTPException

from hearthd.server.api.middleware import body_limits
from hearthd.server.api.middleware.body_limits import BodyLimit, estimated_memory
from hearthd.server.api.resumable.streams import Streams
from tests.patience import PATIENCE
from tests.server import fakes
from tests.server.api.middleware.test_abuse import connect, request
from tests.server.generate_client import LIBRARY

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

MEMORY = 8 * 1000  # 1000 bytes, or 166 values and theirs
TEXT = b"a" * 600  # more than half


class Answering:
    """A body limit around an application that answers when it is told to."""

    def __init__(self) -> None:
        self.read: list[bytes] = []
        self.may_answer = asyncio.Event()
        self.memory = MEMORY
        self.streams = Streams()
        self.limit = BodyLimit(
            self._answer,
            max_bytes=10_000,
            memory=lambda: self.memory,
            streams=self.streams,
            upload_paths=("/form",),
        )

    async def _answer(self, _scope: Any, receive: Any, _send: Any) -> None:
        message = await receive()
        assert not message["more_body"]
        self.read.append(message["body"])
        await self.may_answer.wait()

    async def post(
        self, *parts: bytes, length: int | None = None, client: Any = None, form: str = ""
    ) -> None:
        """A request whose body comes in parts; before the last one, wait for the `client`.

        `form` is the path of a request that says that it sends a form.
        """
        left = list(parts)
        size = sum(map(len, parts)) if length is None else length

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0)
            if len(left) == 1 and client is not None:
                await client.wait()
            return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

        async def send(message: Any) -> None:
            raise AssertionError(message)

        headers = [(b"content-length", b"%d" % size)] if size else []
        headers += [(b"content-type", b"multipart/form-data; boundary=x")] if form else []
        scope = {"type": "http", "path": form, "headers": headers}
        await self.limit(scope, receive, send)

    async def refusal(self, *parts: bytes, **options: Any) -> tuple[int, object]:
        with pytest.raises(HTTPException) as refused:
            await asyncio.wait_for(self.post(*parts, **options), PATIENCE)
        return refused.value.status_code, refused.value.headers

    async def wait(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not is_so():
                await asyncio.sleep(0.005)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "_MAX_WAIT", PATIENCE)
    monkeypatch.setattr(body_limits, "_PATIENCE", 0.05)
    monkeypatch.setattr(body_limits, "_SAMPLE", 1)


@pytest.fixture
def _refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests in which no body that waits gets memory."""
    monkeypatch.setattr(body_limits, "_MAX_WAIT", 0.2)


def run(scenario: Callable[[Answering], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        await scenario(Answering())

    asyncio.run(main())


def halves(body: bytes) -> tuple[bytes, bytes]:
    return body[: len(body) // 2], body[len(body) // 2 :]


@pytest.mark.usefixtures("_refusals")
def test_kept_streams_leave_memory_to_bodies() -> None:
    body = b"[" * 60

    async def scenario(app: Answering) -> None:
        ended, begun = (app.streams.open("", id_) for id_ in "ab")
        app.memory += app.streams.memory
        app.may_answer.set()
        await app.post(*halves(body))
        app.streams.append(ended, b"x" * MEMORY)
        assert (await app.refusal(*halves(body)))[0] == 503  # no stream has ended
        app.streams.end(ended)
        await app.post(*halves(body))
        assert app.streams.find("", "a") is None
        assert app.streams.find("", "b") is begun

    run(scenario)


def test_a_model_that_is_found_later_brings_memory() -> None:
    body = b"[" * 167

    async def scenario(app: Answering) -> None:
        assert await app.refusal(*halves(body)) == (413, None)
        app.memory *= 2
        app.may_answer.set()
        await asyncio.wait_for(app.post(*halves(body)), PATIENCE)
        assert app.read == [body]

    run(scenario)


@pytest.mark.usefixtures("_refusals")
@pytest.mark.parametrize("length", [None, 0])
def test_a_body_is_refused_while_others_have_the_memory(length: int | None) -> None:
    async def scenario(app: Answering) -> None:
        assert await app.refusal(*halves(b"[" * 167), length=length) == (413, None)
        for _ in range(2):
            waiting = [
                asyncio.create_task(app.post(*halves(b" " * size), length=length))
                for size in (600, 400)
            ]
            await asyncio.sleep(0.01)
            assert await app.refusal(*halves(b" " * 2), length=length) == (
                503,
                {"Retry-After": "1"},
            )
            assert await app.refusal(*halves(b"[" * 167), length=length) == (413, None)
            app.may_answer.set()
            await asyncio.gather(*waiting)
            app.may_answer.clear()

    run(scenario)


@pytest.mark.parametrize("body", [TEXT, b"[" * 100], ids=["text", "values"])
def test_of_large_bodies_at_once_those_that_fit_are_read(body: bytes) -> None:
    """Each takes more than half of the memory, and all arrive together."""

    async def scenario(app: Answering) -> None:
        posts = [asyncio.create_task(app.post(*halves(body))) for _ in range(5)]
        await app.wait(lambda: len(app.read) == 1)
        app.may_answer.set()
        await asyncio.gather(*posts)
        assert app.read == [body] * 5

    assert 2 * estimated_memory(body) > MEMORY
    run(scenario)


@pytest.mark.usefixtures("_refusals")
def test_a_body_that_does_not_fit_lets_smaller_ones_pass() -> None:
    async def scenario(app: Answering) -> None:
        first = asyncio.create_task(app.post(TEXT))
        await app.wait(lambda: len(app.read) == 1)
        large = asyncio.create_task(app.refusal(*halves(TEXT)))
        await asyncio.sleep(0.01)
        small = asyncio.create_task(app.post(*halves(b"a" * 400)))
        await app.wait(lambda: len(app.read) == 2)
        assert (await large)[0] == 503
        app.may_answer.set()
        await asyncio.gather(first, small)

    run(scenario)


def test_a_body_keeps_the_memory_of_its_values_only() -> None:
    """More is expected after a beginning with many values."""

    async def scenario(app: Answering) -> None:
        first = asyncio.create_task(app.post(b"[" * 50, b"a" * 400))
        await app.wait(lambda: len(app.read) == 1)
        second = asyncio.create_task(app.post(b"a" * 200))
        await app.wait(lambda: len(app.read) == 2)
        app.may_answer.set()
        await asyncio.gather(first, second)

    run(scenario)


def test_a_form_counts_with_its_bytes_only_where_a_route_reads_forms() -> None:
    """Other routes parse JSON of any type."""

    async def scenario(app: Answering) -> None:
        app.may_answer.set()
        commas = b"," * 300
        await app.post(commas, form="/form")
        assert await app.refusal(commas, form="/api/chat") == (413, None)

    run(scenario)


def test_bodies_get_memory_in_the_order_of_their_requests() -> None:
    async def scenario(app: Answering) -> None:
        first = asyncio.create_task(app.post(b"0" * 600))
        await app.wait(lambda: len(app.read) == 1)
        bodies = [b"%d" % number * 600 for number in range(1, 4)]
        waiting = []
        for body in bodies:
            waiting.append(asyncio.create_task(app.post(body)))
            await asyncio.sleep(0.01)
        app.may_answer.set()
        await asyncio.gather(first, *waiting)
        assert app.read[1:] == bodies

    run(scenario)


@pytest.mark.parametrize("sent", [b"", b"a"], ids=["nothing", "little"])
def test_a_client_that_does_not_send_keeps_no_memory(sent: bytes) -> None:
    async def scenario(app: Answering) -> None:
        client = asyncio.Event()
        slow = asyncio.create_task(app.post(sent, TEXT, client=client))
        await asyncio.sleep(0.01)
        prompt = asyncio.create_task(app.post(*halves(TEXT)))
        await app.wait(lambda: len(app.read) == 1)
        app.may_answer.set()
        await prompt
        client.set()
        await slow
        assert app.read == [TEXT, sent + TEXT]

    run(scenario)


@pytest.mark.parametrize("is_slow", [True, False])
def test_a_slow_client_loses_its_memory_while_others_wait(
    is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_limits, "_MAX_WAIT", PATIENCE if is_slow else 0.2)
    monkeypatch.setattr(body_limits, "_SLOW_AFTER", 0.05)
    monkeypatch.setattr(body_limits, "_SLOW_RATE", 10**6 if is_slow else 1)

    async def scenario(app: Answering) -> None:
        client = asyncio.Event()
        post = app.refusal if is_slow else app.post
        uploading = asyncio.create_task(post(TEXT, b"a" * 300, client=client))
        await asyncio.sleep(0.1)
        app.may_answer.set()
        if is_slow:
            await app.post(TEXT)
            client.set()
            assert await uploading == (503, {"Retry-After": "1"})
        else:
            assert (await app.refusal(TEXT))[0] == 503
            client.set()
            await uploading

    run(scenario)


def test_a_refused_body_takes_no_memory_while_its_rest_is_sent() -> None:
    async def scenario(app: Answering) -> None:
        client = asyncio.Event()
        refused = asyncio.create_task(app.refusal(b"[" * 100, b"[" * 100, b"", client=client))
        await asyncio.sleep(0.01)
        whole = asyncio.create_task(app.post(b"a" * 1000))
        await app.wait(lambda: len(app.read) == 1)
        client.set()
        app.may_answer.set()
        await whole
        assert (await refused)[0] == 413

    run(scenario)


def test_few_bodies_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a message of up to 64 KB that does not count yet."""

    async def scenario(app: Answering) -> None:
        first = asyncio.create_task(app.post(TEXT))
        await app.wait(lambda: len(app.read) == 1)
        waiting = [asyncio.create_task(app.post(TEXT)) for _ in range(2)]
        await asyncio.sleep(0.01)
        refused = asyncio.create_task(app.refusal(TEXT))
        await asyncio.sleep(0.01)
        assert refused.done()
        app.may_answer.set()
        await asyncio.gather(first, *waiting)

    monkeypatch.setattr(body_limits, "_MAX_WAITING", 2)
    run(scenario)


def test_a_server_reads_large_bodies_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """While another client announces one of the largest and sends little of it."""
    patience = 600  # seconds: each body is parsed behind the others, on a machine that may be busy
    monkeypatch.setattr(body_limits, "_MAX_WAIT", patience)
    size = 3_900_000
    body = b'{"prompt": "' + b"a" * (size - 14) + b'"}'

    async def post_all(url: str) -> list[int]:
        async with httpx.AsyncClient(base_url=url, timeout=patience) as client:
            headers = {"Content-Type": "application/json"}
            posts = (client.post("/generate", content=body, headers=headers) for _ in range(8))
            return [answer.status_code for answer in await asyncio.gather(*posts)]

    with (
        fakes.running(fakes.pool(fakes.fake_service(LIBRARY), max_body_bytes=size)) as client,
        connect(client) as slow,
    ):
        slow.sendall(request(b'{"prompt": "', length=size))
        assert asyncio.run(post_all(str(client.base_url))) == [400] * 8  # too long a text
