"""Serve two models for hours under a mixed load, and check memory, answers and requests.

    hearth bake smollm2 --adapters 8 --out base
    hearth bake gemma3 --out other
    python -m tools.soak base other --minutes 120 --json soak.json
    python -m tools.soak base other --minutes 30 --tls

Clients repeat questions whose answers an idle server gave before, ask new ones, disconnect and
send invalid requests. Meanwhile adapters are loaded and unloaded, bundles reloaded and unloaded,
and the disk of the prefix cache is full now and then. Exit code 1 if memory grew (see memory.py),
a request was lost, an answer has other bits, or the server logged an error. Linux only, as root: it
mounts a small file system.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from benchmarks.inputs import existing_bundle
from hearthd.baker.presentation.table import Table, print_table
from hearthd.bundle import CHAT_TEMPLATE, LanguageManifest, read_manifest_of
from tests.server.certificates import certificate
from tests.server.tls import trusting
from tools.soak.memory import Growth, Sample, growths, sample
from tools.soak.operations import Operator, small_disk, write_adapter
from tools.soak.questions import Question, Rejected, ask, questions
from tools.soak.traffic import Client, Loaded, Record

if TYPE_CHECKING:
    from collections.abc import Sequence

_ADAPTERS = ("a", "b", "c", "d")
_KEY = "the-key-of-a-soak"
_DISK_MB, _CACHE_MB = 192, 144
_INTERVAL = 5  # seconds between two samples
_MIN_SAMPLES = 8  # so that each quarter has some
_TIMEOUT = 3600  # seconds for a response, also on a machine with little time for this


class Soak:
    """One run on a server that has been started."""

    def __init__(
        self, arguments: argparse.Namespace, folder: Path, server: subprocess.Popen[bytes]
    ) -> None:
        self.record = Record()
        self.samples: list[Sample] = []
        self.metrics: list[str] = []
        self._arguments = arguments
        self._server = server
        self._manifests = {
            path.name: read_manifest_of(path, LanguageManifest)
            for path in (arguments.base, arguments.other)
        }
        self._loaded = Loaded()
        self._client = httpx.AsyncClient(
            base_url=f"{'https' if arguments.tls else 'http'}://127.0.0.1:{arguments.port}",
            timeout=_TIMEOUT,
            verify=trusting(),
            headers={"Authorization": f"Bearer {_KEY}"},
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        self.operator = Operator(
            self._client,
            pid=server.pid,
            base=arguments.base.name,
            other=arguments.other.name,
            adapters=list(_ADAPTERS),
            disk=folder / "disk",
            loaded=self._loaded,
            record=self.record,
            seed=arguments.seed,
        )

    async def run(self) -> None:
        """Record the answers, send the load, and ask a part of it again."""
        await self._ready()
        for model in self._manifests:
            await self.operator.fill_slots(model)
        recorded = {question: await ask(self._client, question) for question in self._questions()}
        say(f"{len(recorded)} answers recorded")
        seed, began = self._arguments.seed, time.monotonic()
        ends = began + 60 * self._arguments.minutes
        clients = [
            Client(self._client, recorded, self._loaded, self.record, f"{seed}-{number}")
            for number in range(self._arguments.clients)
        ]
        load = asyncio.gather(
            *(client.run(lambda: time.monotonic() >= ends) for client in clients),
            self.operator.run(ends),
        )
        while not (await asyncio.wait({load}, timeout=_INTERVAL))[0]:
            self.samples.append(sample(self._server.pid, time.monotonic() - began))
            if len(self.samples) % 60 == 0:
                self._progress()
        await load
        await self._after(recorded)

    async def _ready(self) -> None:
        deadline = time.monotonic() + _TIMEOUT
        while time.monotonic() < deadline and self._server.poll() is None:
            try:
                if (await self._client.get("/health/ready")).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.5)
        raise TimeoutError("the server is not ready")

    def _questions(self) -> list[Question]:
        base, other = self._arguments.base.name, self._arguments.other.name
        places = ((base, None), *((base, name) for name in _ADAPTERS), (other, None))
        return [
            question
            for model, adapter in places
            for question in questions(
                model,
                adapter,
                chat=CHAT_TEMPLATE in {file.name for file in self._manifests[model].files},
                rounds=2,
                seed=self._arguments.seed,
            )
        ]

    async def _after(self, recorded: dict[Question, str]) -> None:
        """Ask again without a prefix cache, and check that nothing is left running."""
        await self.operator.load_all()
        for question, answer in [*self.record.kept, *recorded.items()]:
            body = dict(question.body)
            if question.kind in ("new", "long"):
                body["cache_prompt"] = False
            again = await ask(self._client, Question(**{**vars(question), "body": body}))
            equal = again == answer
            self.record.outcomes["asked again"]["equal" if equal else "different"] += 1
            if not equal:
                self.record.violation(f"{question.name}, asked again: got {again}, had {answer}")
        for model in self._manifests:
            slots = (await self._client.get("/slots", params={"model": model})).json()
            if any(slot["is_processing"] for slot in slots):
                self.record.violation(f"{model}: a slot is still in use: {slots}")
        metrics = (await self._client.get("/metrics")).text
        self.metrics = [line for line in metrics.splitlines() if not line.startswith("#")]

    def _progress(self) -> None:
        last = self.samples[-1]
        total = sum(sum(row.values()) for row in self.record.outcomes.values())
        say(
            f"{last.seconds / 60:.0f} min: {total} requests, {last.resident / 1e6:.0f} MB "
            f"resident, {last.anonymous / 1e6:.0f} MB anonymous, {dict(self.operator.counts)}, "
            f"{len(self.record.violations)} violations"
        )
        for violation in self.record.violations[-3:]:
            say(f"  {violation}")


def serve(arguments: argparse.Namespace, folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start the server of both bundles."""
    options = {
        "--threads": arguments.threads,
        "--port": arguments.port,
        "--lora-dir": folder / "adapters",
        "--cache-dir": folder / "disk" / "cache",
        "--cache-ram": "32MiB",
        "--cache-disk": f"{_CACHE_MB}MiB",
        "--api-key": _KEY,
        "--client-timeout": _TIMEOUT,
    }
    if arguments.tls:
        options["--tls-cert"], options["--tls-key"] = certificate(folder)
    flags = [str(argument) for pair in options.items() for argument in pair]
    bundles = [str(arguments.base), str(arguments.other)]
    with log.open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "hearthd", "serve", *bundles, *flags],
            stdout=file,
            stderr=subprocess.STDOUT,
        )


def report(arguments: argparse.Namespace, soak: Soak, log: Path) -> bool:
    """Print the tables and write the file; returns whether the run passed."""
    lines = log.read_text("utf-8", errors="replace").splitlines()
    for line in lines:
        if any(word in line for word in (" ERROR ", "Traceback", "error:")):
            soak.record.violation(f"log: {line[:300]}")
    disk_full = sum("cannot write" in line for line in lines)
    found = growths(soak.samples)
    print_table(memory_table(found))
    print_table(outcome_table(soak.record))
    say(f"operations: {dict(soak.operator.counts)}; {disk_full} blocks met a full disk")
    for violation in soak.record.violations[:20]:
        say(f"violation: {violation}")
    passed = not soak.record.violations and all(growth.flat for growth in found)
    say("passed" if passed else "failed")
    if arguments.json:
        result: dict[str, Any] = {
            "minutes": arguments.minutes,
            "clients": arguments.clients,
            "passed": passed,
            "memory": [asdict(growth) for growth in found],
            "outcomes": soak.record.outcomes,
            "operations": soak.operator.counts,
            "blocks_on_a_full_disk": disk_full,
            "violations": soak.record.violations,
            "metrics": soak.metrics,
            "samples": [asdict(sample) for sample in soak.samples],
        }
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return passed


def memory_table(found: Sequence[Growth]) -> Table:
    """A row for each measure; memory in MB."""

    def shown(growth: Growth, value: float) -> str:
        return f"{value:.0f}" if growth.measure in ("files", "threads") else f"{value / 1e6:.1f}"

    return Table(
        title="Memory, MB: medians of the second and the last quarter",
        headings=("measure", "second", "last", "growth", "peak", "flat"),
        rows=tuple(
            (
                growth.measure,
                shown(growth, growth.second),
                shown(growth, growth.last),
                f"{100 * (growth.last / growth.second - 1):+.2f} %",
                shown(growth, growth.peak),
                "yes" if growth.flat else "NO",
            )
            for growth in found
        ),
    )


def outcome_table(record: Record) -> Table:
    """A row for each kind of request."""
    outcomes = sorted({name for row in record.outcomes.values() for name in row})
    return Table(
        title="Requests",
        headings=("kind", *outcomes),
        rows=tuple(
            (kind, *(str(row[name]) for name in outcomes))
            for kind, row in sorted(record.outcomes.items())
        ),
    )


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {text}\n")
    sys.stdout.flush()


def main() -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("base", type=existing_bundle, help="bundle with places for adapters")
    parser.add_argument("other", type=existing_bundle, help="bundle without")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--seed", default="0")
    parser.add_argument(
        "--tls", action="store_true", help="serve and ask over TLS, with a new certificate"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--log", type=Path, metavar="FILE", help="keep the server's log")
    arguments = parser.parse_args()
    # The end by SIGTERM is reported as that by Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    places = read_manifest_of(arguments.base, LanguageManifest).adapters
    with tempfile.TemporaryDirectory(prefix="hearth-soak-") as name:
        folder = Path(name)
        for seed, adapter in enumerate(_ADAPTERS):
            write_adapter(folder / "adapters" / adapter, places, seed)
        with small_disk(folder / "disk", _DISK_MB):
            log = folder / "log"
            server = serve(arguments, folder, log)
            soak = Soak(arguments, folder, server)
            try:
                asyncio.run(soak.run())
            except (httpx.HTTPError, Rejected, TimeoutError, KeyboardInterrupt) as error:
                soak.record.violation(f"ended early: {type(error).__name__}: {error}")
            finally:
                server.terminate()
                code = server.wait(_TIMEOUT)
                if arguments.log:
                    shutil.copy(log, arguments.log)
            if code:
                soak.record.violation(f"the server ended with {code}")
            if len(soak.samples) < _MIN_SAMPLES:
                say(f"the load was too short: {soak.record.violations}; {log.read_text()[-2000:]}")
                return 1
            return 0 if report(arguments, soak, log) else 1


if __name__ == "__main__":
    sys.exit(main())
