"""Measure how many short texts a second servers embed, beside each other.

    python -m benchmarks.embeddings minilm \\
        --server "llama-server=llama-server -m minilm-q8_0.gguf --embedding --pooling mean -t 2"

The texts are of 5 to 30 words of Hearth's documentation. They are posted to /v1/embeddings, in
several requests one after the other. Every second round has the servers in reverse order. The last
column is the least cosine of a text's vector and that of the first server, the bundle. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np

from benchmarks.report.machine import describe_machine, write_json
from benchmarks.serving.server_process import Running, Server, resources, running
from hearthd.baker.presentation.table import Table, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_DOCS = Path(__file__).parent.parent / "docs"
_ROUTE = "/v1/embeddings"
_HEADINGS = ("server", "texts/s", "range", "resident MB", "least cosine")


def short_texts(count: int) -> list[str]:
    """Texts of 5 to 30 words; the same ones for the same documentation."""
    pages = sorted(_DOCS.glob("*.md"))
    text = " ".join(page.read_text(encoding="utf-8") for page in pages)
    words = re.findall("[a-z]+", text.lower())
    chance = random.Random(0)
    starts = [chance.randrange(len(words) - 30) for _ in range(count)]
    return [" ".join(words[start : start + chance.randint(5, 30)]) for start in starts]


def embedded(
    client: httpx.Client, url: str, texts: Sequence[str], batch: int
) -> NDArray[np.float64]:
    """The vectors f64 (len(texts), W), of length 1; raises httpx.HTTPStatusError."""
    vectors: list[list[float]] = []
    for start in range(0, len(texts), batch):
        body = {"model": "m", "input": texts[start : start + batch]}
        answer = client.post(url + _ROUTE, json=body).raise_for_status().json()
        vectors += [one["embedding"] for one in answer["data"]]
    rows = np.array(vectors, np.float64)
    unit: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def measure(servers: Sequence[Server], rounds: int, texts: Sequence[str], batch: int) -> Table:
    """Run all servers and post all texts to each of them in turn; raises ServerFailed."""
    speeds: dict[str, list[float]] = {server.name: [] for server in servers}
    vectors = {}
    with contextlib.ExitStack() as stack:
        client = stack.enter_context(httpx.Client(timeout=600))
        ready: dict[str, Running] = {
            server.name: stack.enter_context(running(server)) for server in servers
        }
        for number in range(rounds):
            for name in list(ready)[:: 1 if number % 2 == 0 else -1]:
                began = time.perf_counter()
                vectors[name] = embedded(client, ready[name].url, texts, batch)
                speeds[name].append(len(texts) / (time.perf_counter() - began))
        memory = {name: resources(process.pid).resident_mb for name, process in ready.items()}
    first = vectors[servers[0].name]
    rows = tuple(
        (
            name,
            f"{statistics.median(speeds[name]):.0f}",
            f"{min(speeds[name]):.0f} to {max(speeds[name]):.0f}",
            f"{memory[name]:.0f}",
            f"{(vectors[name] * first).sum(axis=1).min():.5f}",
        )
        for name in speeds
    )
    return Table(title=f"{len(texts)} texts, {batch} a request", headings=_HEADINGS, rows=rows)


def main() -> None:
    """Measure, print the table and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path, help="an encoder")
    parser.add_argument("--server", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=100, help="texts of a request")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="of the bundle's server")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    ours = (sys.executable, "-m", "hearthd", "serve", str(options.bundle))
    commands: dict[str, tuple[str, ...]] = {
        options.bundle.name: (*ours, "--threads", str(options.threads))
    }
    for text in options.server:
        name, _, command = text.partition("=")
        commands[name] = tuple(shlex.split(command))
    servers = [
        Server(name=name, command=command, route=_ROUTE, body={"model": "m", "input": "a"})
        for name, command in commands.items()
    ]
    machine = describe_machine(options.threads)
    table = measure(servers, options.rounds, short_texts(options.texts), options.batch)
    sys.stdout.write(f"{machine}\n")
    print_table(table)
    if options.json:
        write_json(options.json, machine, headings=table.headings, rows=table.rows)


if __name__ == "__main__":
    main()
