"""Two nodes of Ray on this machine, and the application on them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import httpx
import ray
from ray import serve
from ray.cluster_utils import Cluster

from hearthd.server.cluster.application import Scale, application
from hearthd.server.cluster.bundles import Bundles
from hearthd.server.settings import Settings
from tests.cluster.empty_application import empty_application
from tests.patience import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from hearthd.server.cluster.bundles import Bundle

APP = "hearth"
_HEAD = "head"  # a resource of the head node, which keeps the front there
_STORE = 78_643_200  # bytes of each node's object store, the least that Ray takes
# The variables of docs/scale-out.md, and what a short-lived cluster needs.
_ENVIRONMENT = {
    "RAY_SERVE_ENABLE_HA_PROXY": "1",
    "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
# Of HAProxy, which does not start if one of them is in use.
_PORTS = ("RAY_SERVE_HAPROXY_METRICS_PORT", "RAY_SERVE_HAPROXY_STATS_PORT")
_REPLICA_TITLE = f"ray::ServeReplica:{APP}:Model"


class Described(Bundles, Protocol):
    """An opener of one bundle."""

    def describe(self) -> Bundle:
        """The bundle."""


class LocalCluster:
    """A head node, which has the front, and a second node; each has room for two replicas."""

    def __init__(self, cluster: Cluster, url: str) -> None:
        self.url = url
        self._cluster = cluster
        self._second: Any = None

    def deploy(
        self,
        bundles: Described,
        scale: Scale,
        *,
        models: Sequence[Bundle] | None = None,
        **settings: Any,
    ) -> None:
        """Deploy the application, or update it, and wait until it is served by all replicas.

        `models` are the bundles that it serves, by default the one that `bundles` describes.
        """
        values = {"bundle": "/nowhere", "threads": 1, "shutdown_timeout": 10, **settings}
        scale = dataclasses.replace(scale, front_resources={_HEAD: 0.1})
        app = application(bundles, Settings(**values), models or [bundles.describe()], scale)
        self.add_second_node()
        serve.run_many([serve.RunTarget(app, name=APP)], wait_for_applications_running=False)
        replicas = max(1, scale.min_replicas)
        self.wait_until(lambda: serve.status().applications[APP].status == "RUNNING")
        self.wait_until(lambda: self._answers("/health/ready"))
        self.wait_until(lambda: len(replica_processes()) >= replicas or not scale.min_replicas)

    def deploy_empty(self, step_seconds: float) -> str:
        """Deploy an application that computes nothing, besides the other one; returns its URL."""
        serve.run(empty_application(step_seconds), name="empty", route_prefix="/empty")
        return f"{self.url}/empty"

    def undeploy(self) -> None:
        """Remove the application, so that its CPUs are free."""
        serve.delete(APP)

    def add_second_node(self) -> None:
        """Start the second node, unless it runs."""
        if self._second is None:
            self._second = _patiently(
                lambda: self._cluster.add_node(num_cpus=2, object_store_memory=_STORE)
            )

    def kill_second_node(self) -> None:
        """Kill all processes of the second node at once."""
        self._cluster.remove_node(self._second, allow_graceful=False)
        self._second = None

    def wait_until(self, condition: Any, seconds: float = 120) -> None:
        """Wait until a condition holds; raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {seconds} s: {serve.status()}")
            time.sleep(0.2)

    def _answers(self, path: str) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}{path}", timeout=PATIENCE).status_code == 200
        return False


@contextlib.contextmanager
def local_cluster() -> Iterator[LocalCluster]:
    """A cluster as long as the block."""
    os.environ.update(_ENVIRONMENT)
    os.environ.update((name, str(_free_port())) for name in _PORTS)
    port = _free_port()
    cluster = Cluster()
    try:
        _patiently(
            lambda: cluster.add_node(
                num_cpus=2,
                object_store_memory=_STORE,
                resources={_HEAD: 1},
                include_dashboard=False,
            )
        )
        os.environ["RAY_ADDRESS"] = cluster.address  # for child processes
        ray.init(log_to_driver=False, configure_logging=False)
        serve.start(proxy_location="HeadOnly", http_options={"port": port})
        yield LocalCluster(cluster, f"http://127.0.0.1:{port}")
    finally:
        with contextlib.suppress(Exception):
            serve.shutdown()
        ray.shutdown()
        cluster.shutdown()
        os.environ.pop("RAY_ADDRESS", None)


def _patiently(start: Callable[[], Any]) -> Any:
    """What `start` returns. Ray gives a node 30 seconds, which a busy machine exceeds."""
    for _ in range(3):
        with contextlib.suppress(Exception):
            return start()
    return start()


def replica_processes() -> list[int]:
    """The ids of the processes of all model replicas."""
    process_ids = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "cmdline").read_bytes().startswith(_REPLICA_TITLE.encode()):
                process_ids.append(int(folder.name))
    return sorted(process_ids)


def kill_replica(process: int) -> None:
    """Kill the process of a model replica, which has no time to tell anybody."""
    os.kill(process, signal.SIGKILL)


def _free_port() -> int:
    """A port below those that connections get: it stays free until a server takes it."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
