"""Real bundles that take each other's place under a real server, while it is asked."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hearthd.bundle import VMFB
from tests.patience import PATIENCE
from tests.server.process.test_signals import wait_for_reload

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Bundles

pytestmark = pytest.mark.slow

BODY = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "logprobs": 0}


def put(link: Path, bundle: Path) -> None:
    """Have a link name a bundle, in one step."""
    link.with_suffix(".new").symlink_to(bundle)
    link.with_suffix(".new").replace(link)


def broken(bundle: Path, folder: Path) -> Path:
    """A copy of a bundle, one byte of whose program is another."""
    folder.mkdir()
    for file in bundle.iterdir():
        (folder / file.name).hardlink_to(file)
    (folder / VMFB).unlink()
    shutil.copy(bundle / VMFB, folder / VMFB)
    program = bytearray((folder / VMFB).read_bytes())
    program[len(program) // 2] ^= 1
    (folder / VMFB).write_bytes(program)
    return folder


def ask(client: httpx.Client) -> tuple[str, Any]:
    """The bundle that answered, and what."""
    response = client.post("/v1/completions", json=BODY)
    assert response.status_code == 200, response.text
    answer = response.json()
    (choice,) = answer["choices"]
    return answer["system_fingerprint"], (choice["text"], choice["logprobs"]["token_logprobs"])


def reload(process: subprocess.Popen[str], client: httpx.Client) -> dict[str, Any]:
    """What /health says of the reload that a SIGHUP begins."""
    before = client.get("/health").json()["last_reload"]
    process.send_signal(signal.SIGHUP)
    return wait_for_reload(client, before, seconds=120)


@pytest.mark.nightly
def test_reload_serves_gemma_after_smollm2_and_rejects_a_broken_bundle(
    bundles: Bundles, tmp_path: Path
) -> None:
    link, good = tmp_path / "current", bundles["gemma3"]
    put(link, bundles["smollm2"])
    process = subprocess.Popen(
        [sys.executable, "-m", "hearthd", "serve", str(link), "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HEARTH_LOG_LEVEL": "error"},
    )
    try:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address
        # A kept connection can be closed by the server while a busy client writes to it.
        limits = httpx.Limits(max_keepalive_connections=0)
        with httpx.Client(base_url=address.group(), timeout=120, limits=limits) as client:
            _swap(process, client, link, good, broken(good, tmp_path / "bad"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()


def _swap(
    process: subprocess.Popen[str], client: httpx.Client, link: Path, good: Path, bad: Path
) -> None:
    ending = threading.Event()
    answers: list[tuple[str, Any]] = []

    def go_on_asking() -> None:
        while not ending.is_set():
            answers.append(ask(client))

    first = ask(client)
    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(go_on_asking) for _ in range(2)]
        try:
            put(link, good)
            health = reload(process, client)
            assert health["last_reload"]["succeeded"] is True, health
            second = ask(client)
            put(link, bad)
            health = reload(process, client)
            assert health["last_reload"]["succeeded"] is False
            assert VMFB in health["last_reload"]["message"]
            assert health["status"] == "ok"
            third = ask(client)
        finally:
            ending.set()
        for one in asking:
            one.result()
    assert first[0] != second[0] == third[0] == health["bundle"]
    assert first[1] != second[1] == third[1]
    # No request was lost, and each answer is one bundle's from end to end.
    expected = dict((first, second))
    assert {bundle for bundle, _ in answers} == set(expected)
    for bundle, answer in answers:
        assert answer == expected[bundle]
