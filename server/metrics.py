"""Prometheus metrics: requests, tokens, times, and the current state of the engines.

Each model has its own registry. The server's registry collects them all and adds the label `model`.
The module knows the text layer's record of a completion and the engines' states, and no HTTP. Times
are in seconds.
"""

from __future__ import annotations

import functools
import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from typing_extensions import override

from hearthd.server.engine.state import CacheState, CallsState, EngineState
from hearthd.server.llama_metrics import LlamaServerMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Self

    from hearthd.runtime.checks.self_test import Verdict
    from hearthd.text.answer import Ended

CONTENT_TYPE = CONTENT_TYPE_LATEST

# In the text format, the time at which a counter was created is a gauge of its own for each.
disable_created_metrics()  # type: ignore[no-untyped-call]

# 200 tokens per second (a small model on a fast CPU) to 1 per second (a large one on a board).
_TOKEN_BUCKETS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5)
# A step of a small GRU takes about 50 us.
_RUN_BUCKETS = (1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_NO_ENGINE = EngineState(slots=(), queued=0, queue_limit=0, cache=CacheState())
_WAIT_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Metrics:
    """The metrics of every kind of model.

    `verdict` is called when the metrics are read. `info` has the constant labels of hearth_info.
    """

    def __init__(self, *, verdict: Callable[[], Verdict | None], info: Mapping[str, str]) -> None:
        self._registry = registry = CollectorRegistry(auto_describe=False)
        self._verdict, self._info = verdict, info
        registry.register(_Model(lambda: self._verdict(), lambda: self._info))
        self._queue_time = Histogram(
            "hearth_queue_seconds",
            "Seconds that a request waited for a slot.",
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )

    def follow(self, newer: Self) -> None:
        """Read from `newer`; keep the counters."""
        self._verdict, self._info = newer._verdict, newer._info

    def detach(self) -> None:
        """Keep the counters of a service that ended, and nothing that belongs to it."""
        self._verdict = lambda: None

    def collect(self) -> Iterable[Metric]:
        """The metrics as they are now."""
        return self._registry.collect()


class MeasuredModel(NamedTuple):
    """A model of the server, and its metrics once it was loaded for the first time.

    memory   bytes that it takes, without the process
    waiting  requests that wait until it is loaded
    """

    name: str
    loaded: bool
    memory: int
    waiting: int
    metrics: Metrics | None


class ServerMetrics:
    """The metrics of a server and all its models. `models` is called when they are read."""

    def __init__(self, models: Callable[[], Iterable[MeasuredModel]]) -> None:
        self.started = int(time.time())  # Unix time, in seconds
        self._registry = registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        registry.register(_Models(models))
        self._requests = Counter(
            "hearth_http_requests",
            "HTTP requests that were answered, by route and status.",
            ("route", "status"),
            registry=registry,
        )

    def answered(self, route: str, status: int) -> None:
        """Count a request that was answered, possibly with an error, by its route."""
        self._requests.labels(route=route, status=str(status)).inc()

    def text(self) -> bytes:
        """All metrics in Prometheus's text format, CONTENT_TYPE."""
        return generate_latest(self._registry)


class _Prompts:
    """The prompts or texts that a model reads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.tokens = Counter(
            "hearth_prompt_tokens",
            "Prompt tokens by source: computed by the model, or reused from the prefix cache.",
            ("source",),
            registry=registry,
        )
        self.seconds = Counter(
            "hearth_prompt_seconds",
            "Seconds of reading prompts: from a slot to the first token, or of an encoder's calls.",
            registry=registry,
        )


class LanguageMetrics(Metrics):
    """The metrics of a language model. `state` is called when they are read."""

    def __init__(
        self,
        *,
        state: Callable[[], EngineState],
        verdict: Callable[[], Verdict | None],
        info: Mapping[str, str],
    ) -> None:
        super().__init__(verdict=verdict, info=info)
        registry = self._registry
        self._state = state
        registry.register(_Engine(lambda: self._state()))

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"hearth_{name}", text, labels, registry=registry)

        self._completions = counter(
            "completions",
            "Accepted completions by outcome. cancelled: the client disconnected.",
            "outcome",
        )
        self._prompts = _Prompts(registry)
        self._generated_tokens = counter("generated_tokens", "Tokens that were generated.")
        self._drafted_tokens = counter("drafted_tokens", "Drafted tokens that the model verified.")
        self._accepted_tokens = counter(
            "drafted_tokens_accepted", "Drafted tokens that the model accepted."
        )
        self._first_token = Histogram(
            "hearth_time_to_first_token_seconds",
            "Seconds from the acceptance of a request to its first token.",
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self._next_token = Histogram(
            "hearth_inter_token_seconds",
            "Seconds between two tokens of an answer.",
            buckets=_TOKEN_BUCKETS,
            registry=registry,
        )

    @override
    def follow(self, newer: Self) -> None:
        super().follow(newer)
        self._state = newer._state

    @override
    def detach(self) -> None:
        super().detach()
        self._state = lambda: _NO_ENGINE

    def embedded(self, tokens: int) -> None:
        """Count the tokens of a text that was embedded."""
        self._prompts.tokens.labels(source="model").inc(tokens)

    def completed(self, ended: Ended) -> None:
        """Count a completion that ended, for any reason."""
        self._completions.labels(outcome=ended.outcome).inc()
        self._generated_tokens.inc(len(ended.token_times))
        self._drafted_tokens.inc(ended.drafted)
        self._accepted_tokens.inc(ended.accepted)
        if ended.started is not None:
            computed = ended.prompt_tokens - ended.cached_tokens
            self._prompts.tokens.labels(source="model").inc(computed)
            self._prompts.tokens.labels(source="cache").inc(ended.cached_tokens)
            self._queue_time.observe(ended.started - ended.submitted)
        if ended.token_times:
            self._first_token.observe(ended.token_times[0] - ended.submitted)
            if ended.started is not None:
                self._prompts.seconds.inc(ended.token_times[0] - ended.started)
        for before, after in itertools.pairwise(ended.token_times):
            self._next_token.observe(after - before)


class ArraysMetrics(Metrics):
    """The metrics of array functions. `state` is called when they are read."""

    def __init__(
        self,
        *,
        state: Callable[[], CallsState],
        verdict: Callable[[], Verdict | None],
        info: Mapping[str, str],
    ) -> None:
        super().__init__(verdict=verdict, info=info)
        self._state = state
        self._registry.register(_Calls(lambda: self._state()))
        self._runs = Counter(
            "hearth_runs",
            "Accepted calls by function and outcome. cancelled: the client disconnected.",
            ("function", "outcome"),
            registry=self._registry,
        )
        self._run_time = Histogram(
            "hearth_run_seconds",
            "Seconds that a call of the function took.",
            ("function",),
            buckets=_RUN_BUCKETS,
            registry=self._registry,
        )

    @override
    def follow(self, newer: Self) -> None:
        super().follow(newer)
        self._state = newer._state

    @override
    def detach(self) -> None:
        super().detach()
        self._state = lambda: CallsState(slots=1, busy=0, queued=0, queue_limit=0)

    def ended(self, function: str, outcome: str) -> None:
        """Count an accepted call that ended: done, failed or cancelled."""
        self._runs.labels(function=function, outcome=outcome).inc()

    def ran(self, function: str, *, queued: float, seconds: float) -> None:
        """Record the seconds that a call waited and ran."""
        self._queue_time.observe(queued)
        self._run_time.labels(function=function).observe(seconds)


class EncoderMetrics(ArraysMetrics):
    """The metrics of an encoder: also of the texts that it reads, from the first one on."""

    @functools.cached_property
    def _prompts(self) -> _Prompts:
        return _Prompts(self._registry)

    @override
    def ran(self, function: str, *, queued: float, seconds: float) -> None:
        super().ran(function, queued=queued, seconds=seconds)
        self._prompts.seconds.inc(seconds)

    def encoded(self, tokens: int) -> None:
        """Count the tokens of texts that were read."""
        self._prompts.tokens.labels(source="model").inc(tokens)


class _Models:
    """The metrics of all models, with the label `model`."""

    def __init__(self, models: Callable[[], Iterable[MeasuredModel]]) -> None:
        self._models = models
        self._llama_server = LlamaServerMetrics()

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        gauges = {
            "loaded": GaugeMetricFamily(
                "hearth_model_loaded", "1 if the model is loaded, else 0.", labels=("model",)
            ),
            "memory": GaugeMetricFamily(
                "hearth_model_memory_bytes",
                "Most memory that the loaded model takes, without the process.",
                labels=("model",),
            ),
            "waiting": GaugeMetricFamily(
                "hearth_model_waiting",
                "Requests that are waiting until the model is loaded.",
                labels=("model",),
            ),
        }
        families: dict[str, Metric] = {}
        for model in self._models():
            for name, gauge in gauges.items():
                gauge.add_metric((model.name,), float(getattr(model, name)))
            for family in model.metrics.collect() if model.metrics else ():
                merged = families.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                merged.samples += [
                    sample._replace(labels={**sample.labels, "model": model.name})
                    for sample in family.samples
                ]
        yield from gauges.values()
        yield from families.values()
        yield from self._llama_server.collect(families.values())


class _Model:
    """The gauges of every kind of model, computed when they are read."""

    def __init__(
        self, verdict: Callable[[], Verdict | None], info: Callable[[], Mapping[str, str]]
    ) -> None:
        self._verdict = verdict
        self._info = info

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        facts = self._info()
        info = GaugeMetricFamily(
            "hearth_info", "Version, model and bundle that are served.", labels=tuple(facts)
        )
        info.add_metric(tuple(facts.values()), 1)
        yield info
        if (verdict := self._verdict()) and verdict.level != "off":
            passed = float(verdict.passed)
            yield GaugeMetricFamily(
                "hearth_self_test_passed", "1 if the self-test passed, else 0.", value=passed
            )


class _Engine:
    """The gauges of a language model."""

    def __init__(self, state: Callable[[], EngineState]) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        state = self._state()
        busy = sum(slot.busy for slot in state.slots)
        yield from _load(len(state.slots), busy, state.queued, state.queue_limit)
        yield from _cache(state.cache)


class _Calls:
    """The gauges of array functions."""

    def __init__(self, state: Callable[[], CallsState]) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        """Called by the registry."""
        state = self._state()
        yield from _load(state.slots, state.busy, state.queued, state.queue_limit)


def _load(slots: int, busy: int, queued: int, queue_limit: int) -> Iterator[Metric]:
    for name, text, value in (
        ("slots", "Requests that can run at the same time.", slots),
        ("slots_busy", "Requests that are running.", busy),
        ("queued", "Requests that are waiting for a slot.", queued),
        ("queue_limit", "Maximum number of requests that may wait for a slot.", queue_limit),
    ):
        yield GaugeMetricFamily(f"hearth_{name}", text, value=value)


def _cache(cache: CacheState) -> Iterator[Metric]:
    prefix = "hearth_prefix_cache"
    for name, text, value in (
        ("blocks", "Blocks of the prefix cache in memory.", cache.blocks),
        ("bytes", "Size of the prefix cache in memory, in bytes.", cache.bytes),
        ("limit_bytes", "Maximum size of the prefix cache in memory, in bytes.", cache.limit_bytes),
    ):
        yield GaugeMetricFamily(f"{prefix}_{name}", text, value=value)
    hits = CounterMetricFamily(
        f"{prefix}_hits", "Blocks reused, by source: memory or disk.", labels=("source",)
    )
    hits.add_metric(("memory",), cache.hits - cache.disk_hits)
    hits.add_metric(("disk",), cache.disk_hits)
    yield hits
    yield CounterMetricFamily(
        f"{prefix}_misses", "Blocks that were not cached and were computed.", value=cache.misses
    )
    yield CounterMetricFamily(
        f"{prefix}_evictions", "Blocks evicted from memory.", value=cache.evicted
    )
