"""The routers of this process. Ray copies the module of a router, so they register here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.server.cluster.cached_blocks import BundleStats


class KnownReplicas(Protocol):
    """A router's view of the replicas of its deployment; for any thread."""

    @property
    def curr_replicas(self) -> Mapping[Any, Any]:
        """The replicas that run, by their ids."""

    def reports(self, model_id: str) -> list[BundleStats]:
        """The latest report of each running replica that has loaded a bundle."""


# By the names of deployment and application.
_routers: dict[tuple[str, str], KnownReplicas] = {}


def register(deployment: str, app: str, router: KnownReplicas) -> None:
    """The router of this process for a deployment is this one."""
    _routers[deployment, app] = router


def router_of(deployment: str, app: str) -> KnownReplicas | None:
    """The router of this process for a deployment; None before the first request."""
    return _routers.get((deployment, app))
