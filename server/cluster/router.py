"""The router: which model replica serves a request.

    1  the replicas that have loaded the bundle, and no others while one of them is not full
    2  of these, the ones that hold the longest start of the prompt in their prefix caches
    3  if those are full, the less loaded of two random ones

A replica reports the keys of its blocks every second. Until its next report, it also counts as
holding the blocks of the prompts that were sent to it.

The router runs in the process of a front, in a thread of its own.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from ray.serve.request_router import MultiplexMixin, RequestRouter

from hearthd.server.cluster.cached_blocks import SentBlocks, matching_blocks
from hearthd.server.cluster.routers import register
from hearthd.server.cluster.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ray.serve.request_router import PendingRequest, ReplicaID, RunningReplica

    from hearthd.server.cluster.cached_blocks import BundleStats

REPORT_SECONDS = 1.0  # between two reports of a replica
# A request that found no free replica with its bundle for this long has the bundle loaded in
# another one.
_SPREAD_SECONDS = 1.0


class CachedBlocksRouter(MultiplexMixin, RequestRouter):
    """Sends a request to the replica that has most of its prompt in the prefix cache."""

    def initialize_state(self) -> None:
        """Called by Ray when the router is created."""
        self._sent: dict[ReplicaID, SentBlocks] = {}
        register(self._deployment_id.name, self._deployment_id.app_name, self)

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Called by Ray: groups of replicas, the best first. It takes the least loaded of a group.

        The groups are asked in turn until one has a replica that is not full.
        """
        if pending_request is None:
            return [_two_of(candidate_replicas)]
        pending_request.routing_context.should_backoff = True
        model_id = pending_request.metadata.multiplexed_model_id
        with_bundle, *others = self.rank_replicas_via_multiplex(candidate_replicas, model_id)
        groups = [_two_of(with_bundle)]
        if not with_bundle or time.time() - pending_request.created_at > _SPREAD_SECONDS:
            groups += map(_two_of, others)
        work = next((arg for arg in pending_request.args if isinstance(arg, Work)), None)
        if work is not None and work.blocks:
            groups.insert(0, self._longest_match(work, model_id, with_bundle))
        return groups

    def on_request_routed(
        self,
        pending_request: PendingRequest,
        replica_id: ReplicaID,
        result: object,  # noqa: ARG002 - Ray's signature
    ) -> None:
        """Called by Ray when a replica has accepted a request."""
        for work in pending_request.args:
            if isinstance(work, Work):
                sent = self._sent.setdefault(replica_id, SentBlocks())
                sent.add(work.blocks, time.monotonic())

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Called by Ray when replicas start, stop or report."""
        super().update_replicas(replicas)
        running = {replica.replica_id for replica in replicas}
        for replica_id in self._sent.keys() - running:
            del self._sent[replica_id]

    def reports(self, model_id: str) -> list[BundleStats]:
        """See KnownReplicas.reports. Ray copies this module, so it does not inherit from it."""
        replicas = list(self.curr_replicas.values())
        return [stats for replica in replicas if (stats := replica.routing_stats.get(model_id))]

    def _longest_match(
        self, work: Work, model_id: str, replicas: Sequence[RunningReplica]
    ) -> list[RunningReplica]:
        """The replicas that hold most blocks of the prompt, or none if no replica holds one."""
        matches = {}
        for replica in replicas:
            stats = replica.routing_stats.get(model_id)
            sent = self._sent.get(replica.replica_id)
            matches[replica.replica_id] = matching_blocks(
                work.blocks,
                stats.blocks if stats else frozenset(),
                sent.times if sent else {},
            )
        longest = max(matches.values(), default=0)
        if not longest:
            return []
        return [replica for replica in replicas if matches[replica.replica_id] == longest]


def _two_of(replicas: Sequence[RunningReplica]) -> list[RunningReplica]:
    return random.sample(replicas, min(2, len(replicas)))
