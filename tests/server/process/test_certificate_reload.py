"""SIGHUP reads the certificate again, in a real server process."""

from __future__ import annotations

import contextlib
import select
import signal
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.patience import PATIENCE, wait_until
from tests.server.certificates import certificate
from tests.server.generate_client import answer
from tests.server.tls import trusting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Server = tuple[subprocess.Popen[str], httpx.Client]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server with cert.pem and key.pem, whose steps take 50 ms."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.server.slow_server", *certificate(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    try:
        with httpx.Client(base_url=address, timeout=PATIENCE, verify=trusting()) as client:
            yield process, client
    finally:
        process.kill()
        process.communicate()


def served(client: httpx.Client) -> str:
    """The certificate that a new connection gets."""
    assert client.base_url.port is not None
    return ssl.get_server_certificate((client.base_url.host, client.base_url.port), timeout=30)


def renew(folder: Path) -> None:
    """Replace the files, as certbot does."""
    (folder / "new").mkdir()
    for path in certificate(folder / "new"):
        path.replace(folder / path.name)


def test_a_new_certificate_is_served_and_streams_go_on(server: Server, tmp_path: Path) -> None:
    process, client = server
    before = served(client)
    received: list[str] = []

    def read() -> None:
        body = {"prompt": "x", "max_tokens": 4000, "stream": True}  # longer than PATIENCE
        with (
            contextlib.suppress(httpx.TransportError),
            client.stream("POST", "/generate", json=body) as response,
        ):
            for line in response.iter_lines():
                received.append(line)  # noqa: PERF402 - as they arrive

    with ThreadPoolExecutor(1) as pool:
        pool.submit(read)
        wait_until(lambda: bool(received))
        renew(tmp_path)
        process.send_signal(signal.SIGHUP)
        wait_until(lambda: served(client) != before)
        assert served(client) == (tmp_path / "cert.pem").read_text()
        count = len(received)
        wait_until(lambda: len(received) > count + 1)
        process.kill()


def empty(folder: Path) -> None:
    (folder / "cert.pem").write_text("")


def cut_off(folder: Path) -> None:
    path = folder / "cert.pem"
    path.write_bytes(path.read_bytes()[:-100])


def of_another_key(folder: Path) -> None:
    kept = (folder / "key.pem").read_bytes()
    renew(folder)
    (folder / "key.pem").write_bytes(kept)


def missing(folder: Path) -> None:
    (folder / "key.pem").unlink()


def encrypted(folder: Path) -> None:
    command = "openssl pkey -aes256 -passout pass:secret -in key.pem -out encrypted.pem"
    subprocess.run(command.split(), cwd=folder, check=True)
    (folder / "encrypted.pem").replace(folder / "key.pem")


@pytest.mark.parametrize("damage", [empty, cut_off, of_another_key, missing, encrypted])
def test_a_damaged_certificate_is_not_served(
    server: Server, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    process, client = server
    before = served(client)
    damage(tmp_path)
    process.send_signal(signal.SIGHUP)
    assert process.stderr is not None
    assert select.select([process.stderr], [], [], PATIENCE)[0]
    line = process.stderr.readline()
    assert line.startswith("cannot serve HTTPS: ")
    assert line.endswith("; the server keeps the certificate that it has\n")
    assert served(client) == before
    assert answer(client, max_tokens=1)["usage"]["completion_tokens"] == 1
