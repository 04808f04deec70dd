"""The real model in exactly the memory that its bundle asks for, and in less."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx
import pytest

from benchmarks.memory_contract import resident
from hearthd.bundle import PARAMETERS, LanguageManifest, read_manifest_of
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from tests.conftest import Bundles

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

_SERVE = (sys.executable, "-m", "hearthd", "serve")


async def _ask_twice(url: str) -> list[httpx.Response]:
    body = {"prompt": "Once upon a time", "max_tokens": 4}
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        return await asyncio.gather(*(client.post("/generate", json=body) for _ in range(2)))


def test_one_slot_fits_in_the_memory_of_one_slot(bundles: Bundles) -> None:
    bundle = bundles["gemma3"]
    manifest = read_manifest_of(bundle, LanguageManifest)
    needed, read = manifest.memory.needed(1), manifest.footprint.read
    command = (*_SERVE, str(bundle), "--port", "0", "--max-memory", str(needed))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = re.search(r"http://\S+", process.stdout.readline())
            assert address
            answers = asyncio.run(_ask_twice(address.group()))
            slots = httpx.get(f"{address.group()}/slots").json()
            weights, everything = resident(process.pid)
        finally:
            process.kill()
    assert [answer.status_code for answer in answers] == [200, 200]  # the second one waited
    assert len(slots) == 1
    # No grammar was asked for, no body was large, and little was written into the slot: 33 MB.
    assert 0.65 * needed < everything - max(0, weights - read) <= needed
    # Others were laid out anew; of their pages only rows of the table are looked up.
    assert weights < read + (bundle / PARAMETERS).stat().st_size / 4


def test_too_little_memory_is_an_error_in_one_line(bundles: Bundles) -> None:
    needed = read_manifest_of(bundles["gemma3"], LanguageManifest).memory.needed(1)
    command = (
        *_SERVE,
        str(bundles["gemma3"]),
        "--port",
        "0",
        "--max-memory",
        str(needed * 4 // 5),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("hearth serve: ")
    assert len(done.stderr.splitlines()) == 1
    assert "is not enough: one slot needs" in done.stderr
