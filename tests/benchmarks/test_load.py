"""The client and the scenarios, with a fake runtime behind the HTTP server."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

from benchmarks.engines.engine_worker import rates
from benchmarks.serving.load_client import Answer, Prompts, RequestFailed, ask, connect
from benchmarks.serving.load_scenarios import Requester, throughput
from benchmarks.serving.server_process import Server, ServerFailed, resources
from benchmarks.serving.server_process import running as running_process
from tests.server.fakes import fake_service, gemma_like, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running(fake_service(gemma_like(), context=16384, slots=4)) as client:
        yield str(client.base_url)


async def asked(client: httpx.AsyncClient, prompt: str, tokens: int) -> Answer:
    async with client:
        return await ask(client, prompt, tokens)


def test_an_answer_has_the_requested_number_of_tokens(url: str) -> None:
    answer = asyncio.run(asked(connect(url), "the fox", 12))
    assert answer.tokens == 12
    assert 1 <= len(answer.arrivals) <= 12
    assert sorted(answer.arrivals) == list(answer.arrivals)
    assert answer.first_token > 0


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ['{"choices": [{"text": "a"}], "usage": {"completion_tokens": 3}}', "[DONE]"],
            "expected 4",
        ),
        (['{"choices": [{"text": "a"}]}', "[DONE]"], "expected 4"),
        (['{"choices": [{"text": "a"}], "usage": {"completion_tokens": 4}}'], "DONE"),
        (['{"choices": [{"text": ""}], "usage": {"completion_tokens": 4}}', "[DONE]"], "no text"),
        ([], "DONE"),
    ],
)
def test_an_incomplete_answer_is_a_failed_request(lines: list[str], message: str) -> None:
    content = "".join(f"data: {line}\n\n" for line in lines)
    transport = httpx.MockTransport(lambda _: httpx.Response(200, text=content))
    client = httpx.AsyncClient(transport=transport, base_url="http://test")
    with pytest.raises(RequestFailed, match=message):
        asyncio.run(asked(client, "x", 4))


def test_an_error_response_is_a_failed_request(url: str) -> None:
    with pytest.raises(RequestFailed, match="400"):
        asyncio.run(asked(connect(url), "x" * 20_000, 4))


def test_gaps_overlap_a_time_span() -> None:
    answer = Answer(sent=0, arrivals=(1, 2, 4, 8), prompt_tokens=1, tokens=4)
    assert answer.gaps() == [1, 2, 4]
    assert answer.gaps([(2.5, 3)]) == [2]
    assert answer.gaps([(0, 1.5), (5, 9)]) == [1, 4]
    assert answer.gaps([]) == []


def test_prompts_follow_from_the_seed_and_never_repeat() -> None:
    texts = [Prompts("a"), Prompts("a"), Prompts("b")]
    first, same, other = ([prompts.text(5) for _ in range(100)] for prompts in texts)
    assert first == same
    assert len({*first, *other}) == 200


def test_a_throughput_scenario_measures_positive_figures(url: str) -> None:
    async def run() -> tuple[dict[str, float], list[str]]:
        async with connect(url) as client:
            requester = Requester(client=client, prompts=Prompts("test"))
            return await throughput(requester, 2, 1), requester.failures

    figures, failures = asyncio.run(run())
    assert failures == []
    assert all(value > 0 for value in figures.values())
    json.dumps(figures, allow_nan=False)


def test_failed_requests_are_counted() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(503, text="no"))

    async def run() -> list[str]:
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            requester = Requester(client=client, prompts=Prompts("test"))
            await throughput(requester, 2, 3)
            return requester.failures

    failures = asyncio.run(run())
    assert len(failures) == 6
    assert "503" in failures[0]


def test_resources_include_child_processes() -> None:
    child = "import subprocess, sys; print(flush=True); sys.stdin.read()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        usage = resources(process.pid)
        process.stdin.close()
    assert usage.threads == 2
    assert usage.files >= 6
    assert usage.resident_mb > 10
    with pytest.raises(ServerFailed):
        resources(process.pid)


def test_a_server_that_does_not_start_is_reported_with_its_output() -> None:
    command = (sys.executable, "-c", "raise SystemExit('there is no such model')")
    with (
        pytest.raises(ServerFailed, match="bad does not answer: there is no such model"),
        running_process(Server(name="bad", command=command)),
    ):
        pass


def test_the_engine_answers_the_requests_of_the_clients_without_http() -> None:
    service = fake_service(gemma_like(), context=16384, slots=2)
    measured = asyncio.run(rates(service, "test", [1, 3], 2))
    assert set(measured) == {1, 3}
    assert all(rate > 0 for rate in measured.values())
