"""Metrics with llama-server's names, for dashboards that were made for it.

Each is a sum over the samples of Hearth's metrics that `server/metrics.py` collected: over all
models, without labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.core import Metric

_PREFIX = "llamacpp:"
_PROMPT_TOKENS, _PROMPT_SECONDS = "prompt_tokens_total", "prompt_seconds_total"
_ANSWER_TOKENS, _ANSWER_SECONDS = "tokens_predicted_total", "tokens_predicted_seconds_total"


class _Alias(NamedTuple):
    """A metric of llama-server, as the sum of samples with a name and a label."""

    name: str
    text: str
    sample: str
    source: str | None = None  # the label `source`


_COUNTERS = (
    _Alias(_PROMPT_TOKENS, "Prompt tokens that were read.", "hearth_prompt_tokens_total", "model"),
    _Alias(
        "prompt_tokens_cached_total",
        "Prompt tokens that came from the prefix cache.",
        "hearth_prompt_tokens_total",
        "cache",
    ),
    _Alias(_PROMPT_SECONDS, "Seconds of reading prompts.", "hearth_prompt_seconds_total"),
    _Alias(_ANSWER_TOKENS, "Tokens that were generated.", "hearth_generated_tokens_total"),
    _Alias(
        _ANSWER_SECONDS,
        "Seconds from the first to the last token of answers.",
        "hearth_inter_token_seconds_sum",
    ),
    _Alias(
        "spec_decode_num_draft_tokens_total",
        "Tokens that were drafted.",
        "hearth_drafted_tokens_total",
    ),
    _Alias(
        "spec_decode_num_accepted_tokens_total",
        "Drafted tokens that the model accepted.",
        "hearth_drafted_tokens_accepted_total",
    ),
)
_GAUGES = (
    _Alias("requests_processing", "Requests that are running.", "hearth_slots_busy"),
    _Alias("requests_deferred", "Requests that wait for a slot.", "hearth_queued"),
)
_DECODED = _Alias("", "", "hearth_inter_token_seconds_count")  # tokens after the first ones
# Tokens per second since the metrics were read the last time.
_RATES = (
    (
        "prompt_tokens_seconds",
        "Prompt tokens per second since the last reading.",
        (_PROMPT_TOKENS, _PROMPT_SECONDS),
    ),
    (
        "predicted_tokens_seconds",
        "Generated tokens per second since the last reading.",
        ("decoded", _ANSWER_SECONDS),
    ),
)


class LlamaServerMetrics:
    """The metrics, and the sums at the last reading."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def collect(self, families: Iterable[Metric]) -> Iterator[Metric]:
        """The metrics that follow from Hearth's."""
        totals = list(families)
        sums = {alias.name: _total(totals, alias) for alias in _COUNTERS}
        for alias in _COUNTERS:
            yield CounterMetricFamily(_PREFIX + alias.name, alias.text, value=sums[alias.name])
        for alias in _GAUGES:
            yield GaugeMetricFamily(_PREFIX + alias.name, alias.text, value=_total(totals, alias))
        sums["decoded"] = _total(totals, _DECODED)
        for name, text, (tokens, seconds) in _RATES:
            yield GaugeMetricFamily(
                _PREFIX + name, text, value=self._rate(sums, tokens=tokens, seconds=seconds)
            )
        self._last = sums

    def _rate(self, sums: Mapping[str, float], *, tokens: str, seconds: str) -> float:
        duration = sums[seconds] - self._last.get(seconds, 0.0)
        return (sums[tokens] - self._last.get(tokens, 0.0)) / duration if duration > 0 else 0.0


def _total(families: Iterable[Metric], alias: _Alias) -> float:
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == alias.sample
        and (alias.source is None or sample.labels.get("source") == alias.source)
    )
