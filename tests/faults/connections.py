"""Many idle connections and slow clients beside normal requests."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = b"POST /generate HTTP/1.1\r\nHost: x\r\n"
_BODY = _HEAD + b"Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n"


def crowd(*, idle: int, slow: int, requests: int) -> None:
    """Time requests to an empty and to a crowded server; prints the figures."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"open files: {soft}, raised to {hard}")  # noqa: T201
    with _server() as (process, address), httpx.Client(base_url=address, timeout=60) as client:
        _time("alone", client, requests)
        print(f"memory {_megabytes(process)} MB")  # noqa: T201
        asyncio.run(_crowded(client, process, idle, slow, requests))


async def _crowded(client: httpx.Client, process: int, idle: int, slow: int, requests: int) -> None:
    host, port = client.base_url.host, client.base_url.port
    async with contextlib.AsyncExitStack() as connections:
        began = time.monotonic()
        silent = [await _connect(connections, host, port) for _ in range(idle)]
        print(f"{idle} connections in {time.monotonic() - began:.1f} s")  # noqa: T201
        dawdlers = [
            asyncio.create_task(_dawdle(*await _connect(connections, host, port), begin, rest))
            for begin, rest in ((b"", _HEAD + b"X: " + b"y" * 9000), (_BODY, b"x" * 5000))
            for _ in range(slow)
        ]
        await asyncio.to_thread(_time, "crowded", client, requests)
        print(f"memory {_megabytes(process)} MB")  # noqa: T201
        for reader, _ in silent:
            await asyncio.wait_for(reader.read(), 120)
        print(f"the silent are closed after {time.monotonic() - began:.1f} s")  # noqa: T201
        seconds = sorted(await asyncio.wait_for(asyncio.gather(*dawdlers), 120))
        if seconds:
            print(f"the slow are closed after {seconds[0]:.1f} to {seconds[-1]:.1f} s")  # noqa: T201
    await asyncio.to_thread(_time, "alone again", client, requests)
    print(f"memory {_megabytes(process)} MB")  # noqa: T201


async def _connect(
    connections: contextlib.AsyncExitStack, host: str, port: int | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port)
    connections.callback(writer.close)
    return reader, writer


async def _dawdle(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, begin: bytes, rest: bytes
) -> float:
    """Send a byte a second; the seconds until the server has had enough."""
    began = time.monotonic()
    writer.write(begin)
    with contextlib.suppress(ConnectionError):
        for byte in rest:
            writer.write(bytes([byte]))
            try:
                await asyncio.wait_for(reader.read(), 1)
                break
            except TimeoutError:
                pass
    return time.monotonic() - began


def _time(when: str, client: httpx.Client, requests: int) -> None:
    """Print how long requests take, each on a connection of its own."""
    taken = []
    for _ in range(requests):
        began = time.monotonic()
        body = {"prompt": "the dog", "max_tokens": 4}
        response = client.post("/generate", json=body, headers={"Connection": "close"})
        assert response.status_code == 200, response.text
        taken.append(1e3 * (time.monotonic() - began))
    taken.sort()
    median, late = statistics.median(taken), taken[int(0.95 * len(taken))]
    print(f"{when}: {requests} requests, median {median:.0f} ms, p95 {late:.0f} ms")  # noqa: T201


@contextlib.contextmanager
def _server() -> Iterator[tuple[int, str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.server.slow_server"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def _megabytes(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1000
    raise AssertionError("a process without memory")
