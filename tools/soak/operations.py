"""What an operator does to the server during a soak, and what fills its disk."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
from safetensors.numpy import save_file

from benchmarks.serving.load_client import Prompts
from hearthd.bundle.lora.adapter_folder import PREFIX, TENSORS
from hearthd.bundle.lora.adapter_settings import CONFIG
from tools.soak.questions import COMPLETIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from hearthd.bundle import AdapterPlaces
    from tools.soak.traffic import Loaded, Record

_FULL = 15  # seconds for which the disk is full
_INTERVAL = (3, 25)  # seconds between two operations
_PATIENCE = 600  # seconds for a reload
_LONGEST = 660  # words of a prompt: more than a client sends
_ANSWERS = 8  # at least as many as a model has slots


class Operator:
    """Loads, unloads and reloads; `base` is the model with adapters and `other` has none."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        *,
        pid: int,
        base: str,
        other: str,
        adapters: list[str],
        disk: Path,
        loaded: Loaded,
        record: Record,
        seed: str,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._client = client
        self._pid = pid
        self._base, self._other = base, other
        self._adapters = adapters
        self._disk = disk
        self._loaded = loaded
        self._record = record
        self._random = random.Random(seed)
        self._reloaded = itertools.cycle((base, other))
        self._unloaded = itertools.cycle((base, other))

    async def run(self, ends: float) -> None:
        """Do one thing after the other until the time `ends` of time.monotonic.

        Each round does everything in another order, so that the quarters of a run are alike.
        """
        actions: dict[Callable[[], Awaitable[None]], int] = {
            self._change_an_adapter: 8,
            self._reload_by_route: 1,
            self._reload_by_signal: 1,
            self._unload_a_model: 1,
            self._fill_the_disk: 2,
        }
        waiting: list[Callable[[], Awaitable[None]]] = []
        while time.monotonic() < ends:
            if not waiting:
                waiting = list(Counter(actions).elements())
                self._random.shuffle(waiting)
            action = waiting.pop()
            name = action.__name__.strip("_").replace("_", " ")
            try:
                await action()
                self.counts[name] += 1
            except (httpx.HTTPError, OSError, TimeoutError) as error:
                self._record.violation(f"{name}: {type(error).__name__}: {error}")
            await asyncio.sleep(
                min(self._random.uniform(*_INTERVAL), max(0, ends - time.monotonic()))
            )

    async def load_all(self) -> None:
        """Load the adapters that are not loaded."""
        for name in self._adapters:
            if name not in self._loaded.names:
                await self._load(name)

    async def fill_slots(self, model: str) -> None:
        """Let a model take at once the memory that it would take after many requests.

        It reads a long prompt in every slot and compiles a grammar; `base` has all adapters.
        """
        if model == self._base:
            await self.load_all()
        body = {
            "model": model,
            "prompt": Prompts("all slots").text(_LONGEST),
            "n": _ANSWERS,
            "max_tokens": 2,
            "temperature": 0,
            "grammar": 'root ::= "yes" | "no"',
        }
        await self._post(COMPLETIONS, body)

    async def _load(self, name: str) -> None:
        await self._post("/lora-adapters/load", {"path": name}, model=self._base)
        self._loaded.names.add(name)

    async def _change_an_adapter(self) -> None:
        absent = [name for name in self._adapters if name not in self._loaded.names]
        if absent:
            await self._load(self._random.choice(absent))
            return
        name = self._random.choice(self._adapters)
        self._loaded.drop(name)
        ids = {adapter["name"]: adapter["id"] for adapter in await self._listed()}
        await self._post("/lora-adapters/unload", {"id": ids[name]}, model=self._base)

    async def _reload_by_route(self) -> None:
        model = next(self._reloaded)
        if model == self._base:
            self._loaded.drop(*self._adapters)
        result = await self._post("/v1/bundle/reload", {}, model=model)
        if not result["succeeded"]:
            self._record.violation(f"reload of {model}: {result['message']}")
        await self.fill_slots(model)

    async def _reload_by_signal(self) -> None:
        await self.load_all()
        self._loaded.drop(*self._adapters)
        os.kill(self._pid, signal.SIGHUP)
        deadline = time.monotonic() + _PATIENCE
        while await self._listed():
            if time.monotonic() > deadline:
                raise TimeoutError(f"no reload within {_PATIENCE} seconds of SIGHUP")
            await asyncio.sleep(0.5)
        for model in (self._base, self._other):
            await self.fill_slots(model)

    async def _unload_a_model(self) -> None:
        model = next(self._unloaded)
        if model == self._base:
            self._loaded.drop(*self._adapters)
        await self._post("/models/unload", {"model": model})
        await self.fill_slots(model)

    async def _fill_the_disk(self) -> None:
        filler = self._disk / "filler"
        try:
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(1 << 16)):
                    pass
            await asyncio.sleep(_FULL)
        finally:
            filler.unlink(missing_ok=True)

    async def _listed(self) -> list[dict[str, Any]]:
        response = await self._client.get("/lora-adapters", params={"model": self._base})
        response.raise_for_status()
        listed: list[dict[str, Any]] = response.json()
        return listed

    async def _post(self, path: str, body: dict[str, Any], model: str = "") -> dict[str, Any]:
        params = {"model": model} if model else {}
        response = await self._client.post(path, json=body, params=params)
        if response.is_error:
            raise httpx.HTTPError(f"{path}: {response.status_code}: {response.text[:300]}")
        answer: dict[str, Any] = response.json()
        return answer


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[Path]:
    """A file system of this size at the folder; raises OSError without the permission."""
    folder.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "none", str(folder)]
    result = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if result.returncode:
        raise OSError(errno.EPERM, f"cannot mount a file system: {result.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def write_adapter(folder: Path, places: AdapterPlaces, seed: int) -> None:
    """An adapter of random numbers for every matrix, as PEFT writes it."""
    rng = np.random.default_rng(seed)
    rank = places.rank // (1 + seed % 2)
    tensors = {}
    for matrix in places.matrices:
        for factor, shape in {
            "lora_A": (rank, matrix.columns),
            "lora_B": (matrix.rows, rank),
        }.items():
            values = rng.normal(size=shape) / 20
            tensors[f"{PREFIX}{matrix.module}.{factor}.weight"] = values.astype(np.float32)
    modules = sorted({matrix.module.rpartition(".")[2] for matrix in places.matrices})
    config = {
        "peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none",
        "target_modules": modules,
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, folder / TENSORS)
