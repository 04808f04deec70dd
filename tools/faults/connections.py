"""Many idle connections and slow clients, together with normal requests."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from tests.server.certificates import certificate
from tests.server.tls import trusting

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterator

_HEAD = b"POST /generate HTTP/1.1\r\nHost: x\r\n"
_BODY = _HEAD + b"Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n"


def crowd(
    *, idle: int, slow: int, requests: int, tls: bool, handshake: bool, client_timeout: float
) -> None:
    """Time requests to an empty and to a crowded server; prints the figures.

    With `tls` all clients use TLS, but the idle ones do not even begin it without `handshake`. The
    server closes silent and slow connections after `client_timeout` seconds.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"open files: {soft}, raised to {hard}")  # noqa: T201
    with (
        _server(client_timeout, tls=tls) as (process, address),
        httpx.Client(base_url=address, timeout=60, verify=trusting()) as client,
    ):
        _time("alone", client, requests)
        print(f"memory {_megabytes(process)} MB")  # noqa: T201
        security = trusting() if tls else None
        asyncio.run(
            _crowded(
                client,
                process,
                [security if handshake else None] * idle,
                [security] * slow,
                requests,
            )
        )


async def _crowded(
    client: httpx.Client,
    process: int,
    idle: list[ssl.SSLContext | None],
    slow: list[ssl.SSLContext | None],
    requests: int,
) -> None:
    """`idle` and `slow` have the TLS of each connection."""
    address = client.base_url.host, client.base_url.port
    async with contextlib.AsyncExitStack() as connections:
        began = time.monotonic()
        silent = [await _connect(connections, *address, security) for security in idle]
        print(f"{len(idle)} connections in {time.monotonic() - began:.1f} s")  # noqa: T201
        dawdlers = [
            asyncio.create_task(
                _dawdle(*await _connect(connections, *address, security), begin, rest)
            )
            for begin, rest in ((b"", _HEAD + b"X: " + b"y" * 9000), (_BODY, b"x" * 5000))
            for security in slow
        ]
        await asyncio.to_thread(_time, "crowded", client, requests)
        still_open = sum(not reader.at_eof() for reader, _ in silent)
        print(f"{still_open} of the silent are still open")  # noqa: T201
        print(f"memory {_megabytes(process)} MB")  # noqa: T201
        for reader, _ in silent:
            with contextlib.suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), 120)
        print(f"the silent are closed after {time.monotonic() - began:.1f} s")  # noqa: T201
        seconds = sorted(await asyncio.wait_for(asyncio.gather(*dawdlers), 120))
        if seconds:
            print(f"the slow are closed after {seconds[0]:.1f} to {seconds[-1]:.1f} s")  # noqa: T201
    await asyncio.to_thread(_time, "alone again", client, requests)
    print(f"memory {_megabytes(process)} MB")  # noqa: T201


async def _connect(
    connections: contextlib.AsyncExitStack,
    host: str,
    port: int | None,
    security: ssl.SSLContext | None,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port, ssl=security)
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
def _server(client_timeout: float, *, tls: bool) -> Iterator[tuple[int, str]]:
    with tempfile.TemporaryDirectory() as folder:
        files = certificate(Path(folder)) if tls else ()
        timeout = ["--client-timeout", str(client_timeout)]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.server.slow_server", *timeout, *files],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        address = process.stdout.readline().strip()
    try:
        yield process.pid, address
    finally:
        process.kill()
        process.communicate()


def _megabytes(process: int) -> int:
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1000
    raise AssertionError("a process without memory")
