"""What a cluster must show: each function measures one row of the table, as a dictionary."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from hearthd.server.cluster.application import Scale
from tests.cluster.batch_on_ray import answers_in, run_and_kill, write_requests
from tests.cluster.fake_bundles import FakeBundles
from tests.cluster.load import Answer, client_of, reference, stream, stream_all
from tests.cluster.local_cluster import kill_replica, replica_processes
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.local_cluster import LocalCluster

Figures = dict[str, float | int | str]

CLIENTS = 64
SLOTS = 16
_STEP_SECONDS = 1.0  # long beside the work of the processes, which share two cores here
_STEADY_SECONDS = 0.1
_TOKENS = 8
STREAMS = 32
_STREAM_TOKENS = 60
_HIT_SECONDS = 3.0  # after which a replica is killed
_BLOCK = 128
_CONVERSATIONS, _TURNS, _TALKING = 200, 6, 8  # _TALKING at a time
_FIRST_TOKENS = 200
_BATCH = 10_000
_LOOK_SECONDS = 0.2
_REPORTED_SECONDS = 2.5  # after which a router knows what a replica has loaded

SLOW = FakeBundles({"slots": SLOTS, "batch": SLOTS, "delay": _STEP_SECONDS}, cache_ram=0)
STEADY = FakeBundles({"slots": SLOTS, "batch": SLOTS, "delay": _STEADY_SECONDS}, cache_ram=0)
NEWER = STEADY.with_fields(spread=2.0)
TALKATIVE = FakeBundles(
    {"slots": 8, "batch": 8, "delay": 0.001, "context": 2048, "chunk": _BLOCK}, cache_ram=2**28
)


def scaling(cluster: LocalCluster) -> Figures:
    """Tokens per second of four replicas and of one, with a fixed step time."""
    speeds = {}
    for replicas in (1, 4):
        cluster.deploy(SLOW, Scale(min_replicas=replicas, max_replicas=replicas))
        speeds[replicas] = asyncio.run(_tokens_per_second(cluster.url, requests=replicas))
    return {
        "1 replica, tokens/s": round(speeds[1], 1),
        "4 replicas, tokens/s": round(speeds[4], 1),
        "ratio": round(speeds[4] / speeds[1], 2),
    }


async def _tokens_per_second(url: str, *, requests: int) -> float:
    """The tokens per second of CLIENTS clients that send `requests` requests each."""
    # A prompt of one token has no prefill: each step is a decode of all slots.
    body = {"prompt": [5], "max_tokens": _TOKENS}
    async with client_of(url) as client:

        async def ask() -> list[Answer]:
            return [await stream(client, body) for _ in range(requests)]

        began = time.monotonic()
        answers = list(chain(*await asyncio.gather(*(ask() for _ in range(CLIENTS)))))
        seconds = time.monotonic() - began
    assert not [answer.error for answer in answers if answer.error]
    return sum(len(answer.tokens) for answer in answers) / seconds


def hit_rate(cluster: LocalCluster) -> Figures:
    """The part of the prompt tokens that came from prefix caches, of four replicas and of one."""
    rates = {}
    for replicas in (1, 4):
        cluster.deploy(TALKATIVE, Scale(min_replicas=replicas, max_replicas=replicas))
        rates[replicas] = asyncio.run(_talk(cluster.url))
    return {
        "1 replica": round(rates[1], 4),
        "4 replicas": round(rates[4], 4),
        "difference": round(1 - rates[4] / rates[1], 4),
    }


async def _talk(url: str) -> float:
    """Hold conversations, each with a start of its own; returns the hit rate."""
    prompt_tokens = cached_tokens = 0
    free = asyncio.Semaphore(_TALKING)
    async with client_of(url) as client:

        async def converse(number: int) -> None:
            nonlocal prompt_tokens, cached_tokens
            prompt = [5 + number % 7, 5 + number % 11, 5 + number % 13, 5 + number % 17]
            async with free:
                for turn in range(_TURNS):
                    prompt += [5 + (number * turn + at) % 300 for at in range(_BLOCK)]
                    body = {"prompt": prompt, "max_tokens": 4}
                    response = (await client.post("/v1/completions", json=body)).json()
                    usage = response["usage"]
                    prompt_tokens += usage["prompt_tokens"]
                    cached_tokens += usage["prompt_tokens_details"]["cached_tokens"]

        await asyncio.gather(*(converse(number) for number in range(_CONVERSATIONS)))
    return cached_tokens / prompt_tokens


def first_token(cluster: LocalCluster, one_process: str, empty: str) -> Figures:
    """Milliseconds to the first token that the cluster adds to a server in one process.

    Both have the same fixed step time, and get requests one after the other, in turn. So do an
    application that computes nothing on Ray, and the same one in a process: `empty`. What Ray adds
    to that one is the least that a request through Ray can take. The last server is that
    application with a connection in place of Ray's handle.
    """
    cluster.deploy(STEADY, Scale(min_replicas=2, max_replicas=2))
    on_ray = cluster.deploy_empty(_STEADY_SECONDS)
    urls = [one_process, cluster.url, empty, on_ray, f"{on_ray}/direct"]
    names = ("one process", "cluster", "empty process", "empty on Ray", "empty without handle")
    times = [_percentiles(seconds) for seconds in asyncio.run(_first_tokens(urls))]
    added = {"": (1, 0), " of Ray alone": (3, 2), " without its handle": (4, 2)}
    return {
        f"{percentile}{label}, ms": round(times[there][at] - times[here][at], 1)
        for label, (there, here) in added.items()
        for at, percentile in enumerate(("p50", "p95"))
    } | {
        f"{name} beyond the step, p50, p95 ms": f"{half:.1f}, {most:.1f}"
        for name, (half, most) in zip(names, times, strict=True)
    }


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    """The median and the 95th percentile beyond the step, in milliseconds."""
    times = [1e3 * (time - _STEADY_SECONDS) for time in sorted(seconds)]
    return statistics.median(times), times[int(0.95 * len(times))]


async def _first_tokens(urls: list[str]) -> list[list[float]]:
    body = {"prompt": [5], "max_tokens": 2}
    times: list[list[float]] = [[] for _ in urls]
    clients = [client_of(url) for url in urls]
    for _ in range(_FIRST_TOKENS):
        for client, seconds in zip(clients, times, strict=True):
            answer = await stream(client, body)
            assert not answer.error
            seconds.append(answer.first_seconds)
    for client in clients:
        await client.aclose()
    return times


def kill_one_replica(cluster: LocalCluster) -> Figures:
    """`kill -9` of a replica under streams."""
    cluster.deploy(STEADY, Scale(min_replicas=4, max_replicas=4))
    return asyncio.run(_hit(cluster.url, lambda: kill_replica(replica_processes()[-1])))


def kill_node(cluster: LocalCluster) -> Figures:
    """The death of a node with two replicas under streams."""
    cluster.deploy(STEADY, Scale(min_replicas=4, max_replicas=4))
    return asyncio.run(_hit(cluster.url, cluster.kill_second_node))


async def _hit(url: str, hit: Callable[[], None]) -> Figures:
    bodies = [{"prompt": [5 + i, 6], "max_tokens": _STREAM_TOKENS} for i in range(STREAMS)]
    streams = asyncio.create_task(stream_all(url, bodies))
    await asyncio.sleep(_HIT_SECONDS)
    await asyncio.to_thread(hit)
    answers = await streams
    complete = [answer for answer in answers if not answer.error]
    expected = await reference(STEADY, complete)
    return {
        "lost": len(answers) - len(complete),
        "different": sum(
            answer.tokens != tokens for answer, tokens in zip(complete, expected, strict=True)
        ),
        "streams": len(answers),
        "longest pause s": round(max(answer.pause_seconds for answer in answers), 1),
        **_first_error(answers),
    }


def rolling_update(cluster: LocalCluster) -> Figures:
    """Requests while the application is updated to another bundle."""
    scale = Scale(min_replicas=2, max_replicas=2)
    cluster.deploy(STEADY, scale)
    answers = asyncio.run(
        _during(cluster.url, lambda: cluster.deploy(NEWER, scale, log_level="debug"))
    )
    failed = [answer.error for answer in answers if answer.error]
    complete = [answer for answer in answers if not answer.error]
    by_old, by_new = (
        sum(
            answer.tokens == tokens
            for answer, tokens in zip(
                complete, asyncio.run(reference(bundles, complete)), strict=True
            )
        )
        for bundles in (STEADY, NEWER)
    )
    return {
        "failed": len(failed),
        "mixed": len(complete) - by_old - by_new,
        "requests": len(answers),
        "by the old bundle": by_old,
        "by the new bundle": by_new,
        **_first_error(answers),
    }


def autoscaling(cluster: LocalCluster) -> Figures:
    """Replicas follow the requests: from none to four, and back to none."""
    scale = Scale(min_replicas=0, max_replicas=4, up_delay=1, down_delay=3)
    cluster.deploy(STEADY, scale)
    cluster.wait_until(lambda: not replica_processes())
    bodies = [{"prompt": [5 + i, 6], "max_tokens": 200} for i in range(STREAMS * 2)]
    most = 0

    async def load() -> list[Answer]:
        nonlocal most
        streams = asyncio.create_task(stream_all(cluster.url, bodies))
        while not streams.done():
            most = max(most, len(replica_processes()))
            await asyncio.sleep(_LOOK_SECONDS)
        return await streams

    answers = asyncio.run(load())
    began = time.monotonic()
    cluster.wait_until(lambda: not replica_processes())
    return {
        "failed": sum(bool(answer.error) for answer in answers),
        "requests": len(answers),
        "first answer from no replica s": round(min(a.first_seconds for a in answers), 1),
        "most replicas": most,
        "seconds to none": round(time.monotonic() - began),
        **_first_error(answers),
    }


def several_models(cluster: LocalCluster) -> Figures:
    """One replica that may load two of three bundles: it unloads the least recently used one."""
    names = ("a", "b", "c")
    openers = {name: STEADY.with_fields(spread=2.0 + at) for at, name in enumerate(names)}
    models = [openers[name].describe(name) for name in names]
    cluster.deploy(STEADY, Scale(max_bundles=2), models=models)
    wrong = 0
    loaded = []
    with httpx.Client(base_url=cluster.url, timeout=PATIENCE) as client:
        for name in "ababacabcb":
            body = {"prompt": [5, 6], "max_tokens": 4, "seed": 7, "model": name}
            answer = client.post("/generate", json=body).raise_for_status().json()
            expected = Answer(body, tokens=answer["token_ids"], seed=7)
            tokens = asyncio.run(reference(openers[name], [expected]))
            wrong += tokens != [expected.tokens]
            time.sleep(_REPORTED_SECONDS)
            loaded.append("".join(n for n in names if client.get(f"/slots?model={n}").json()))
    # The self-tests of all three leave any two of them loaded, until a and b have been used.
    return {"wrong": wrong, "loaded": " ".join(loaded[2:]), "expected": "ab ab ab ac ac ab bc bc"}


def batch(cluster: LocalCluster) -> Figures:
    """`hearth batch --ray`, killed twice: each request must be answered once."""
    cluster.undeploy()
    cluster.add_second_node()
    with tempfile.TemporaryDirectory() as folder:
        requests, answers = Path(folder, "requests"), Path(folder, "answers")
        write_requests(requests, _BATCH)
        began = time.monotonic()
        first = run_and_kill(requests, answers, kill_after=_BATCH // 3)
        second = run_and_kill(requests, answers, kill_after=_BATCH * 2 // 3)
        run_and_kill(requests, answers, kill_after=None)
        seconds = time.monotonic() - began
        lines = answers_in(answers)
    ids = {line["custom_id"] for line in lines}
    return {
        "requests": _BATCH,
        "answers": len(lines),
        "answered": len(ids),
        "errors": sum(line["response"]["status_code"] != 200 for line in lines),
        "killed after": f"{first}, {second}",
        "seconds": round(seconds),
    }


def _first_error(answers: list[Answer]) -> Figures:
    return next(({"first error": answer.error} for answer in answers if answer.error), {})


async def _during(url: str, change: Callable[[], None]) -> list[Answer]:
    """The answers that 8 clients get from some time before a change to some time after it."""
    ends: asyncio.Event = asyncio.Event()
    async with client_of(url) as client:

        async def ask(number: int) -> list[Answer]:
            answers = []
            while not ends.is_set():
                body: dict[str, Any] = {"prompt": [5 + number, 6], "max_tokens": 20}
                answers.append(await stream(client, body))
            return answers

        asking = asyncio.gather(*(ask(number) for number in range(8)))
        await asyncio.sleep(_HIT_SECONDS)
        await asyncio.to_thread(change)
        await asyncio.sleep(_HIT_SECONDS)
        ends.set()
        return list(chain(*await asking))
