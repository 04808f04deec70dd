"""Measure speed, latency and memory of Hearth and llama-server under load.

    python -m benchmarks.serve BUNDLE --llama-cpp MODEL.gguf --llama-server PATH \\
        --json serve.json --plots plots

Compare a bf16 bundle with a BF16 GGUF, and an int8-g32 bundle with a Q8_0 GGUF. Both servers have
the same threads, slots, context and prompt cache, and get the same requests through the same route.
Only one server runs at a time, and the order alternates between rounds. Without --llama-cpp, only
Hearth is measured. The client shares the CPU with either server. The engine of the bundle also
answers the same requests without HTTP: the share is what HTTP leaves of its speed. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.inputs import existing_bundle, existing_path
from benchmarks.report.figures import (
    Figure,
    Rounds,
    figures_table,
    medians,
    print_figures,
)
from benchmarks.report.machine import (
    describe_machine,
    versions,
    versions_line,
    write_json,
)
from benchmarks.report.speed_plots import SpeedLine, speed_by
from benchmarks.serving.load_client import Prompts, connect
from benchmarks.serving.load_scenarios import (
    HOT_FIGURES,
    LONG_FIGURES,
    Requester,
    hot_prompts,
    long_prompts,
    throughput,
    throughput_figures,
)
from benchmarks.serving.server_commands import hearth, llama_server, version_of
from benchmarks.serving.server_process import Running, Server, ServerFailed, resources, running
from hearthd.baker.memory_bandwidth import physical_cores
from hearthd.bundle import LanguageManifest, read_manifest_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.baker.presentation.table import Table

# The goal with eight clients: the ratio to the tokens/s of llama-server.
_GOALS = {"8_rate": 1.8}
_SERVER_FIGURES = (
    Figure("resident_before_mb", "resident memory before, MB"),
    Figure("resident_after_mb", "resident memory after, MB"),
    Figure("failed", "failed requests"),
)


async def measure(
    server: Running, seed: str, clients: Sequence[int], requests: int
) -> tuple[dict[str, float], list[str]]:
    """Run all scenarios on one server; returns the figures and the errors of requests."""
    figures = {
        "load_before": os.getloadavg()[0],
        "resident_before_mb": resources(server.pid).resident_mb,
    }
    began, busy = time.perf_counter(), time.process_time()
    async with connect(server.url) as client:
        requester = Requester(client=client, prompts=Prompts(seed))
        for number in clients:
            figures |= await throughput(requester, number, requests)
        figures |= await long_prompts(requester)
        figures |= await hot_prompts(requester)
    busy = (time.process_time() - busy) / (time.perf_counter() - began)
    return {
        **figures,
        "resident_after_mb": resources(server.pid).resident_mb,
        "client_cores": busy,
        "failed": len(requester.failures),
    }, requester.failures


def shares(figures: dict[str, float], arguments: argparse.Namespace, seed: str) -> dict[str, float]:
    """The rates of `figures`, each divided by the rate of the engine in its own process."""
    flags = {"--requests": arguments.requests, "--threads": arguments.threads, "--seed": seed}
    command = [sys.executable, "-m", "benchmarks.engines.engine_worker", str(arguments.bundle)]
    command += [str(argument) for pair in flags.items() for argument in pair]
    command += ["--clients", *map(str, arguments.clients)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rates: dict[str, float] = json.loads(done.stdout)
    return {f"{number}_share": figures[f"{number}_rate"] / rate for number, rate in rates.items()}


def run_rounds(
    servers: list[Server], arguments: argparse.Namespace, console: Console
) -> dict[str, Rounds]:
    """The figures of each server by round; raises ServerFailed."""
    measured: dict[str, Rounds] = {server.name: [] for server in servers}
    for number in range(arguments.rounds):
        for server in servers if number % 2 == 0 else reversed(servers):
            with running(server) as process:
                # The same prompts for both servers, and new ones in every round.
                seed = f"{arguments.seed}-{number}"
                figures, failures = asyncio.run(
                    measure(process, seed, arguments.clients, arguments.requests)
                )
            if server is servers[0]:
                figures |= shares(figures, arguments, seed)
            measured[server.name].append(figures)
            rates = ", ".join(f"{figures[f'{n}_rate']:.0f}" for n in arguments.clients)
            console.print(
                f"round {number + 1} of {arguments.rounds}, load {figures['load_before']:.1f}: "
                f"{server.name} generates {rates} tokens/s",
                highlight=False,
            )
            for failure in failures[:3]:
                console.print(f"{server.name}: {failure}", style="red", markup=False)
    return measured


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=existing_bundle)
    parser.add_argument("--llama-cpp", type=existing_path, metavar="MODEL.gguf")
    parser.add_argument("--llama-server", default="llama-server", metavar="PATH")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 8, 16], metavar="N")
    parser.add_argument("--requests", type=int, default=3, help="requests per client")
    parser.add_argument(
        "--threads", type=int, default=physical_cores(), help="threads of either server"
    )
    parser.add_argument("--seed", default="0", help="seed of the prompts")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plots", type=Path, metavar="FOLDER")
    return parser.parse_args()


def compare(arguments: argparse.Namespace) -> bool:
    """Measure, print the table and write the files; returns whether all requests succeeded."""
    manifest = read_manifest_of(arguments.bundle, LanguageManifest)
    servers = [hearth(arguments.bundle, arguments.threads)]
    used = versions()
    if arguments.llama_cpp is not None:
        program = shutil.which(arguments.llama_server) or sys.exit(
            f"serve: --llama-server: {arguments.llama_server} does not exist"
        )
        other = llama_server(
            program,
            arguments.llama_cpp,
            slots=manifest.slots,
            context=manifest.context,
            threads=arguments.threads,
        )
        servers.append(other)
        used["llama-server"] = version_of(program)
    machine = describe_machine(arguments.threads)
    measured = run_rounds(servers, arguments, Console(stderr=True))
    print(f"{machine}\n{versions_line(used)}")  # noqa: T201
    table = show(arguments, f"{manifest.precision} bundle", measured)
    if arguments.json is not None:
        write_json(
            arguments.json,
            machine,
            used,
            [table],
            commands={server.name: server.command for server in servers},
            precision=manifest.precision,
            seed=arguments.seed,
            requests_of_a_client=arguments.requests,
            rounds=measured,
        )
    return not any(figures["failed"] for rounds in measured.values() for figures in rounds)


def show(arguments: argparse.Namespace, title: str, measured: dict[str, Rounds]) -> Table:
    """Print the table and write the plot; returns a shorter table.

    The latter has latencies only for the number of clients that has a goal.
    """
    throughputs = [throughput_figures(number) for number in arguments.clients]
    others = [*LONG_FIGURES, *HOT_FIGURES, *_SERVER_FIGURES]
    print_figures(figures_table(title, [*chain(*throughputs), *others], measured, _GOALS))
    if arguments.plots is not None:
        lines = [
            SpeedLine(
                name=name,
                is_hearth=name == "hearth",
                speeds={n: medians(rounds)[f"{n}_rate"] for n in arguments.clients},
            )
            for name, rounds in measured.items()
        ]
        speed_by(arguments.plots / "serve-clients.svg", lines, x_label="clients", what="total")
    rows = chain(*(row if row[0].name in _GOALS else row[:2] for row in throughputs))
    return figures_table(title, [*rows, *others], measured, _GOALS)


def main() -> None:
    """Compare; exit code 1 if a request or a server failed."""
    arguments = options()
    try:
        passed = compare(arguments)
    except ServerFailed as error:
        sys.exit(f"serve: {error}")
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
