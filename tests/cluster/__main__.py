"""Measure what a cluster must show, and print a table.

    python -m tests.cluster [--json FILE] [SCENARIO ...]

Needs hearthd[ray]. Starts two nodes of Ray on this machine; the replicas have a fake runtime with a
fixed step time, so that the figures measure the cluster and not a model.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report.machine import describe_machine
from tests.cluster import scenarios
from tests.cluster.empty_application import serve_empty
from tests.cluster.local_cluster import local_cluster
from tests.cluster.one_process import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cluster.local_cluster import LocalCluster
    from tests.cluster.scenarios import Figures

GOALS = {
    "scaling": "ratio of 3.8",
    "hit_rate": "difference of at most 0.05",
    "first_token": "p50 of 5, p95 of 15 ms",
    "kill_one_replica": "none lost, none different",
    "kill_node": "none lost, none different",
    "rolling_update": "none failed, none mixed",
    "autoscaling": "none failed, 4 replicas",
    "several_models": "none wrong, as expected",
    "batch": "each request answered once",
}


def main() -> None:
    """Run the scenarios that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO")
    parser.add_argument("--json", type=Path, help="File for the figures.")
    options = parser.parse_args()
    results: dict[str, Figures] = {}
    machine = describe_machine(threads=1)
    with local_cluster() as cluster:
        for name in options.scenarios or GOALS:
            began = time.monotonic()
            results[name] = _run(name, cluster)
            figures = ", ".join(f"{key}: {value}" for key, value in results[name].items())
            seconds = time.monotonic() - began
            sys.stdout.write(f"{name} ({GOALS[name]}): {figures} ({seconds:.0f} s)\n")
            sys.stdout.flush()
            if options.json:
                report = {"machine": dataclasses.asdict(machine), "results": results}
                options.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _run(name: str, cluster: LocalCluster) -> Figures:
    if name != "first_token":
        measure: Callable[[LocalCluster], Figures] = getattr(scenarios, name)
        return measure(cluster)
    with (
        _process(serve, scenarios.STEADY) as one_process,
        _process(serve_empty, scenarios.STEADY.fields["delay"]) as empty,
    ):
        return scenarios.first_token(cluster, one_process, empty)


@contextlib.contextmanager
def _process(target: Callable[..., None], argument: object) -> Iterator[str]:
    """The address that `target` serves in a process of its own, as long as the block."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(argument, there))
    process.start()
    try:
        yield here.recv()
    finally:
        process.terminate()
        process.join()


if __name__ == "__main__":
    main()
