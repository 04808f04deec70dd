"""Measure whether a server stays within the memory that its bundle predicts.

    python -m benchmarks.memory_contract gemma3-270m-int8-g32 gemma3-270m-bf16 --json memory.json

Each bundle is served with one slot and with all slots, in a control group whose limit is the sum of
bundle/memory_sum.py. Every kind of route is used once, then requests fill every slot to its
context, one of them with a grammar, while others have the largest accepted bodies and the longest
texts, one at a time: the largest take all the memory for requests. The system may not kill the
server. With 80 % of the memory for one slot, `hearth serve` must report an error. "Measured" is the
peak of resident memory, without the pages of params.irpa that are not read in every step, since the
system can reclaim them. Linux only, as root.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import resource
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
from rich.console import Console

from benchmarks.inputs import existing_bundle
from benchmarks.report.machine import describe_machine, versions, write_json
from benchmarks.serving.memory_group import NoControlGroup, group
from benchmarks.serving.server_process import Running, Server, ServerFailed, running
from hearthd.baker.memory_bandwidth import physical_cores
from hearthd.baker.presentation.table import Table, print_table
from hearthd.bundle import (
    CHAT_TEMPLATE,
    CONTEXTS_PER_TEXT,
    PARAMETERS,
    REQUEST_MEMORY,
    TEXT_BYTES_PER_TOKEN,
    BundleError,
    LanguageManifest,
    megabytes,
    read_manifest_of,
)
from hearthd.server.api.json_body import MAX_OBJECTS
from hearthd.server.api.middleware.body_limits import estimated_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERVAL = 0.005  # seconds between two samples of private memory
_MAPPED_INTERVAL = 0.1  # and of mapped files, which take longer to count
_ANSWER = 16  # tokens
_INSUFFICIENT = 0.8  # of the memory that one slot needs
_LARGE_ROUNDS = 5
_JSON = {"Content-Type": "application/json"}


class Post(NamedTuple):
    """A request with a large body, and the status of an answer whose body was read."""

    path: str
    body: bytes
    status: int


@dataclass(frozen=True, kw_only=True)
class Served:
    """The memory of one server, in bytes.

    predicted  the prediction, which was the limit of the group
    measured   peak of resident memory, with only those pages of params.irpa that every step reads
    resident   peak of resident memory
    group      peak memory charged to the group, with cached pages of files
    killed     processes of the group that the system killed for lack of memory
    slots      slots in use at the same time
    answered   requests with a successful answer
    """

    bundle: str
    precision: str
    slots: int
    predicted: int
    measured: int
    resident: int
    group: int
    killed: int
    answered: int
    asked: int


class Watch:
    """Samples the memory of a process until the block ends."""

    def __init__(self, pid: int, weight_bytes: int) -> None:
        """`weight_bytes` is the size of the weights that every step reads."""
        self.measured = self.resident = 0
        self._pid = pid
        self._weight_bytes = weight_bytes
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _look(self) -> None:
        files = weights = 0
        due = 0.0
        while not self._stop.wait(_INTERVAL):
            try:
                private = private_memory(self._pid)
                if time.monotonic() >= due:
                    weights, everything = resident(self._pid)
                    files = max(0, everything - private)
                    due = time.monotonic() + _MAPPED_INTERVAL
            except (OSError, ValueError):  # the process has ended
                return
            self.resident = max(self.resident, files + private)
            unread = max(0, weights - self._weight_bytes)
            self.measured = max(self.measured, files + private - unread)


def private_memory(pid: int) -> int:
    """Resident bytes of a process that are not of mapped files."""
    _, pages, mapped, *_ = map(int, Path(f"/proc/{pid}/statm").read_text("ascii").split())
    return (pages - mapped) * resource.getpagesize()


def resident(pid: int) -> tuple[int, int]:
    """Resident bytes of a process: of the mapping of params.irpa, and in total."""
    weights = everything = 0
    name = ""
    for line in Path(f"/proc/{pid}/smaps").read_text("utf-8").splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            name = line.rpartition("/")[2]
        elif line.startswith("Rss:"):
            size = int(line.split()[1]) * 1024
            everything += size
            weights += size if name == PARAMETERS else 0
    return weights, everything


def serve_in(
    bundle: Path, manifest: LanguageManifest, *, slots: int, cache: int, threads: int
) -> Served:
    """Serve with the predicted memory for `slots`; raises ServerFailed or NoControlGroup."""
    predicted = manifest.memory.needed(slots, cache)
    drop_cached_pages(bundle)
    with group(predicted) as confined:
        command = confined.inside(_serve(bundle, cache, threads))
        with running(Server(name=bundle.name, command=command)) as server:
            with Watch(server.pid, manifest.footprint.read) as watch:
                answered = asyncio.run(_fill(server, manifest, slots))
            open_slots = len(httpx.get(f"{server.url}/slots").json())
            peak, killed = confined.peak(), confined.killed()
    if open_slots != slots:
        raise ServerFailed(f"{bundle.name}: the server has {open_slots} slots, expected {slots}")
    return Served(
        bundle=bundle.name,
        precision=manifest.precision,
        slots=slots,
        predicted=predicted,
        measured=watch.measured,
        resident=watch.resident,
        group=peak,
        killed=killed,
        answered=answered,
        asked=slots + 1,
    )


def drop_cached_pages(bundle: Path) -> None:
    """Drop the cached pages of the bundle, so that the group is charged for them again."""
    for path in bundle.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def refusal(bundle: Path, manifest: LanguageManifest, *, threads: int) -> str:
    """What `hearth serve` says in a group of 80 % of what one slot needs.

    Raises ServerFailed if it does not report the missing memory.
    """
    with group(int(_INSUFFICIENT * manifest.memory.needed(1))) as confined:
        try:
            with running(
                Server(name=bundle.name, command=confined.inside(_serve(bundle, 0, threads)))
            ):
                raise ServerFailed(f"{bundle.name} was served with less memory than one slot needs")
        except ServerFailed as error:
            if confined.killed() or "is not enough" not in str(error):
                raise
            return str(error)


def _serve(bundle: Path, cache: int, threads: int) -> tuple[str, ...]:
    limits = ("--threads", str(threads), "--cache-ram", str(cache))
    return (
        sys.executable,
        "-m",
        "hearthd",
        "serve",
        str(bundle),
        *limits,
        "--log-level",
        "warning",
    )


async def _fill(server: Running, manifest: LanguageManifest, slots: int) -> int:
    """Fill every slot to its context, and request JSON; returns the number of answers."""
    draw = random.Random(f"{manifest.precision}-{slots}")
    bodies: list[dict[str, Any]] = [
        {
            "prompt": draw.choices(range(manifest.vocab_size), k=manifest.context - _ANSWER),
            "max_tokens": _ANSWER,
            "ignore_eos": True,
            "logprobs": 5,
        }
        for _ in range(slots)
    ]
    bodies.append({"prompt": "JSON:", "max_tokens": _ANSWER, "json_schema": {"type": "object"}})
    async with httpx.AsyncClient(base_url=server.url, timeout=3600) as client:
        await _use_every_route(client, manifest)
        others = sum(estimated_memory(json.dumps(body).encode()) for body in bodies)
        posts = large_bodies(REQUEST_MEMORY - others) + long_texts(manifest.context)
        large = asyncio.create_task(send_large(client, posts * _LARGE_ROUNDS))
        answers = await asyncio.gather(
            *(client.post("/v1/completions", json=body) for body in bodies), return_exceptions=True
        )
        await large
    return sum(isinstance(answer, httpx.Response) and answer.is_success for answer in answers)


async def _use_every_route(client: httpx.AsyncClient, manifest: LanguageManifest) -> None:
    """Use each kind of route once: a server keeps the modules and objects of a route in memory."""
    turn = [{"role": "user", "content": "Hi"}]
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    limit = {"max_tokens": _ANSWER}
    posts: dict[str, dict[str, Any]] = {
        "/generate": {**limit, "prompt": "Hi", "grammar": 'root ::= "a" | "b"'},
        "/completion": {"n_predict": _ANSWER, "prompt": "Hi", "stream": True},
        "/v1/embeddings": {"input": "Hi"},
        "/tokenize": {"content": "Hi"},
    }
    if CHAT_TEMPLATE in {file.name for file in manifest.files}:
        format_ = {"type": "json_schema", "json_schema": {"schema": schema}}
        posts |= {
            "/v1/chat/completions": {**limit, "messages": turn, "response_format": format_},
            "/v1/responses": {"input": turn, "max_output_tokens": _ANSWER},
            "/v1/messages": {**limit, "messages": turn},
        }
    responses = [await client.get(path) for path in ("/", "/openapi.json", "/metrics", "/props")]
    responses += [await client.post(path, json=body) for path, body in posts.items()]
    for response in responses:
        if not response.is_success:
            raise ServerFailed(f"{response.url}: got {response.status_code}: {response.text:.200}")


def large_bodies(memory: int) -> list[Post]:
    """Bodies of about `memory` bytes each, as server/api/middleware/body_limits.py counts."""
    values, objects = memory // 104 - 9, MAX_OBJECTS - 1
    bodies = (
        b'{"prompt": "' + b"the dog " * (memory // 64 - 9) + b'"}',
        b'{"prompt": "' + "\N{FOX FACE}".encode() + b"a" * (memory // 8 - 999) + b'"}',
        b'{"prompt": [' + b"[]," * values + b"[]]}",
        b'{"prompt": [' + b"{}," * objects + b"[]," * (values - objects) + b"[]]}",
        b'{"prompt": [' + b"500," * (memory // 72 - 9) + b"5]}",
    )
    return [Post("/v1/completions", body, httpx.codes.BAD_REQUEST) for body in bodies]


def long_texts(context: int) -> list[Post]:
    """The longest texts that are tokenized for a context. As prompts, they are too many tokens."""
    size, tokens = context * TEXT_BYTES_PER_TOKEN, context * CONTEXTS_PER_TEXT
    draw = random.Random(size)
    dense = " \n" * (tokens * 3 // 8)  # up to a token per byte
    texts = (
        dense + " " * (size - len(dense)),
        "\N{FOX FACE}" * (tokens // 4),
        "".join(chr(draw.randrange(33, 127)) for _ in range(tokens)),
        "\1" * tokens,
    )
    return [
        Post(path, json.dumps(fields | {name: text}, ensure_ascii=False).encode(), status)
        for text in texts
        for path, name, fields, status in (
            ("/v1/completions", "prompt", {}, httpx.codes.BAD_REQUEST),
            ("/tokenize", "content", {"with_pieces": True}, httpx.codes.OK),
        )
    ]


async def send_large(client: httpx.AsyncClient, posts: Sequence[Post]) -> None:
    """Send bodies one after the other; each must be read."""
    for post in posts:
        answer = await client.post(post.path, content=post.body, headers=_JSON)
        if answer.status_code != post.status:
            raise ServerFailed(
                f"{post.path}: a body of {len(post.body)} bytes: got {answer.status_code}, "
                f"expected {post.status}: {answer.text:.200}"
            )


def served_table(served: Sequence[Served]) -> Table:
    """A row for each server, in MB."""
    return Table(
        title="Memory, MB",
        headings=(
            "bundle", "slots", "predicted", "measured", "error", "with file pages", "answered",
            "killed",
        ),
        rows=tuple(
            (
                f"{row.bundle} ({row.precision})",
                str(row.slots),
                megabytes(row.predicted),
                megabytes(row.measured),
                f"{100 * (row.predicted / row.measured - 1):+.1f} %",
                megabytes(row.resident),
                f"{row.answered} of {row.asked}",
                str(row.killed),
            )
            for row in served
        ),
    )  # fmt: skip


def main() -> None:
    """Measure every bundle, print the table and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundles", nargs="+", type=existing_bundle, metavar="BUNDLE")
    parser.add_argument(
        "--cache-ram", type=int, default=64 * 2**20, help="bytes, with all slots; default 64 MiB"
    )
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--json", type=Path, help="write the figures as JSON")
    arguments = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    machine = describe_machine(arguments.threads)
    served: list[Served] = []
    try:
        for bundle in arguments.bundles:
            manifest = read_manifest_of(bundle, LanguageManifest)
            for slots, cache in ((1, 0), (manifest.slots, arguments.cache_ram)):
                began = time.monotonic()
                served.append(
                    serve_in(bundle, manifest, slots=slots, cache=cache, threads=arguments.threads)
                )
                console.print(f"{bundle.name}, {slots} slots: {time.monotonic() - began:.0f} s")
            console.print(refusal(bundle, manifest, threads=arguments.threads), soft_wrap=True)
    except (BundleError, NoControlGroup, ServerFailed) as error:
        sys.exit(f"memory_contract: {error}")
    table = served_table(served)
    print_table(table)
    if arguments.json:
        write_json(
            arguments.json, machine, versions(), [table], served=[asdict(row) for row in served]
        )
    if any(row.killed or row.answered < row.asked for row in served):
        sys.exit("memory_contract: the server was killed, or not every request was answered")


if __name__ == "__main__":
    main()
