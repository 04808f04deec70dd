"""Answer the requests of a batch with many engines, as a job of Ray Data.

The requests that have no answer yet are the data set. Each engine is an actor, which answers a few
blocks of requests at a time. The process that started the job writes the file of answers, so a job
that was killed continues as a batch on one machine does. Ray repeats the blocks of an actor that
dies.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import ray
import ray.data
from ray.exceptions import RayError

from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.server.batch.batch_targets import in_process
from hearthd.server.batch_requests.batch_request import BatchRequest, CannotReach, Reply
from hearthd.server.batch_requests.runner import Counts, answer
from hearthd.server.process.memory_limit import admit_within
from hearthd.server.services.deployment import Deployment
from hearthd.server.services.engine_options import EngineOptions
from hearthd.server.services.language_service import open_language_service
from hearthd.server.services.model_pool import ModelPool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from hearthd.server.batch.files import Answers, Requests
    from hearthd.server.batch_requests.app_target import AppTarget
    from hearthd.server.services.language_service import LocalLanguageService

# Blocks that an engine answers at a time, each with a request for every slot: when the last answers
# of one block are computed, the next one fills the free slots.
_BLOCKS_AT_A_TIME = 3


@dataclass(frozen=True, kw_only=True)
class EngineRecipe:
    """How to start an engine. Pickled, and sent to every node.

    open     opens the bundle in an actor; raises BundleError
    slots    requests that the engine runs at a time
    threads  its CPU threads
    memory   the memory that it takes, in bytes
    """

    open: Callable[[], LocalLanguageService]
    slots: int
    threads: int
    memory: int


def recipe_of(bundle: Path, threads: int) -> EngineRecipe:
    """The engines of a bundle, which every node has at this path; raises BundleError."""
    manifest = read_manifest_of(bundle, LanguageManifest)
    # The context is chosen for this node, so that all engines have the same.
    admitted = admit_within(manifest, None, prefix_cache=None)
    memory = manifest.memory_of(admitted.context).needed(admitted.slots, admitted.prefix_cache)
    options = EngineOptions(context=admitted.context, cache_ram=admitted.prefix_cache)
    return EngineRecipe(
        open=partial(open_language_service, bundle.resolve(), threads=threads, options=options),
        slots=manifest.slots,
        threads=threads,
        memory=memory,
    )


class BatchEngine:
    """An actor of Ray Data that answers blocks of requests."""

    def __init__(self, recipe: EngineRecipe) -> None:
        """Start the engine; raises BundleError or Unavailable."""
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._running = AsyncExitStack()
        self._target = self._wait_for(self._start(recipe))

    def __call__(self, block: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        """Answer a block, in any thread: its columns are as in `_row` and `_reply`."""
        answers: dict[str, list[Any]] = self._wait_for(self._answer_all(block))
        return answers

    async def _start(self, recipe: EngineRecipe) -> AppTarget:
        service = await asyncio.to_thread(recipe.open)
        deployment = Deployment(service.name, lambda _: recipe.open())
        deployment.serve(service)
        parallel = _BLOCKS_AT_A_TIME * recipe.slots
        return await self._running.enter_async_context(
            in_process(ModelPool([deployment]), parallel)
        )

    async def _answer_all(self, block: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
        rows = zip(block["custom_id"], block["url"], block["body"], strict=True)
        replies = await asyncio.gather(
            *(
                answer(self._target, BatchRequest(custom_id=str(id_), url=str(url), body=body))
                for id_, url, body in rows
            )
        )
        return {
            "custom_id": list(block["custom_id"]),
            "status": [reply.status for reply in replies],
            "body": [reply.body for reply in replies],
            "request_id": [reply.request_id for reply in replies],
        }

    def _wait_for(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def run_on_ray(
    requests: Requests,
    answers: Answers,
    recipe: EngineRecipe,
    engines: int | None,
    on_answer: Callable[[], None],
) -> Counts:
    """Answer the remaining requests; `on_answer` is called after each. Raises CannotReach.

    At most `engines` engines run; None for as many as the CPUs of the cluster allow. The cluster is
    the one of RAY_ADDRESS, or the one on this machine, which is started if there is none.
    """
    counts = Counts()
    rows = [_row(request) for request in requests.remaining(set(answers.answered))]
    if not rows:
        return counts
    if not ray.is_initialized():
        ray.init(log_to_driver=False, logging_level=logging.WARNING)
    fitting = int(ray.cluster_resources().get("CPU", 0)) // recipe.threads
    blocks = math.ceil(len(rows) / recipe.slots)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    replies = ray.data.from_items(rows, override_num_blocks=blocks).map_batches(
        BatchEngine,
        fn_constructor_args=(recipe,),
        batch_size=None,
        batch_format="numpy",
        num_cpus=recipe.threads,
        memory=recipe.memory,
        compute=ray.data.ActorPoolStrategy(
            size=min(engines or max(1, fitting), blocks),
            max_tasks_in_flight_per_actor=_BLOCKS_AT_A_TIME,
            max_concurrent_calls_per_actor=_BLOCKS_AT_A_TIME,
            enable_true_multi_threading=True,
        ),
    )
    try:
        for row in replies.iter_rows():
            custom_id = json.loads(row["custom_id"])
            if custom_id in answers.answered:  # by a block that Ray repeated
                continue
            answers.append(custom_id, _reply(row))
            counts.answered += 1
            counts.failed += row["status"] >= 400
            on_answer()
    except RayError as error:
        reason = str(error).strip().rpartition("\n")[2]
        raise CannotReach(f"the job on Ray failed: {reason}") from error
    return counts


def _row(request: BatchRequest) -> dict[str, Any]:
    """A request as a row. Its id is JSON: Arrow rejects some texts that JSON allows."""
    return {
        "custom_id": json.dumps(request.custom_id),
        "url": request.url,
        "body": request.body,
    }


def _reply(row: Mapping[str, Any]) -> Reply:
    return Reply(status=row["status"], body=row["body"], request_id=row["request_id"])
