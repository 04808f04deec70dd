"""The samplers of a chain, each a small function from candidates to candidates.

They follow llama.cpp (src/llama-sampler.cpp; the docstrings name the functions). A request chooses
their order (common/sampling.cpp, common_sampler_init). A sampler that is off returns its input. A
sampler knows no request: it reads a `View`.

Two differences are intended. Of equal logits the lower id is better; in llama.cpp the order depends
on the sort. A token that a grammar or a bias bans stays banned; in llama.cpp a threshold or a
probability of 0 can make it the only candidate, or its logit NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.sampling.candidates import Candidates, fewest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from hearthd.sampling.options import SamplingOptions

_FLOAT_MAX = float(np.finfo(np.float32).max)
_FLOAT_MAX_LOG = 88.7228391  # bound of DRY's penalty, as in llama.cpp


@dataclass(frozen=True, kw_only=True)
class View:
    """The inputs of a sampler: the options, the tokens so far, i64 (t,), and random numbers."""

    options: SamplingOptions
    tokens: NDArray[np.int64]
    random: np.random.Generator


def _last(tokens: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The last `count` tokens; all for -1."""
    return tokens if count < 0 else tokens[max(0, tokens.size - count) :]


def penalties(candidates: Candidates, view: View) -> Candidates:
    """Penalize recent tokens by a factor, once, and per occurrence (llama_sampler_penalties)."""
    options = view.options
    recent = _last(view.tokens, options.repeat_last_n)
    repeat, presence = options.repeat_penalty, options.presence_penalty
    off = repeat == 1 and presence == 0 and options.frequency_penalty == 0
    if off or recent.size == 0:
        return candidates
    ids, counts = np.unique(recent, return_counts=True)
    taken = (counts * options.frequency_penalty + presence).astype(np.float32)

    def weaken(logits: NDArray[np.float32], indices: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.where(logits <= 0, logits * repeat, logits / repeat) - taken[indices]

    return candidates.change(ids, weaken)


def dry(candidates: Candidates, view: View) -> Candidates:
    """Penalize the tokens that would continue a repetition ("don't repeat yourself").

    The penalty is multiplier * base ** (length - allowed), where `length` is the length of the
    longest suffix of the tokens that also occurs earlier, followed by the penalized token
    (llama_sampler_dry, after koboldcpp #982).
    """
    options = view.options
    tokens = _last(view.tokens, options.dry_penalty_last_n)
    if options.dry_multiplier == 0 or options.dry_base < 1:
        return candidates
    lengths = _repetitions(tokens, options)
    lengths = {id_: n for id_, n in lengths.items() if () not in options.dry_breakers.get(id_, ())}
    if not lengths:
        return candidates
    ids = np.array(sorted(lengths))
    powers = np.array([lengths[i] - options.dry_allowed_length for i in ids.tolist()], np.float64)
    powers = np.minimum(powers, _max_power(options.dry_base))
    with np.errstate(over="ignore"):
        taken = (options.dry_multiplier * options.dry_base**powers).astype(np.float32)
    return candidates.change(ids, lambda logits, indices: logits - taken[indices])


def _max_power(base: float) -> float:
    """The largest exponent for which base ** exponent is a finite f32."""
    return int(_FLOAT_MAX_LOG / math.log(base)) if base > 1.000001 else math.inf


def _repetitions(tokens: NDArray[np.int64], options: SamplingOptions) -> dict[int, int]:
    """By token: the length of the repetition that it would continue, if the allowed one or more."""
    allowed = options.dry_allowed_length
    unbroken = _unbroken(tokens, options.dry_breakers)
    if tokens.size <= allowed or unbroken < allowed:
        return {}
    limit = min(unbroken, allowed + _max_power(options.dry_base))
    longest = np.zeros(tokens.size - 1, np.int64)
    # Where the last 0, 1, 2, ... tokens also occur earlier: the positions of their last tokens.
    ends, length = np.arange(tokens.size - 1), 0
    while ends.size and length < limit:
        ends = ends[ends >= length]
        ends = ends[tokens[ends - length] == tokens[-1 - length]]
        length += 1
        longest[ends] = length
    ends = np.flatnonzero(longest >= allowed)
    ends = ends[np.argsort(longest[ends], kind="stable")]  # the longest one per token is last
    return dict(zip(tokens[ends + 1].tolist(), longest[ends].tolist(), strict=True))


def _unbroken(
    tokens: NDArray[np.int64], breakers: Mapping[int, tuple[tuple[int, ...], ...]]
) -> int:
    """The number of tokens after the last breaker."""
    values = tokens.tolist() if breakers else []
    for behind, token in enumerate(reversed(values)):
        tails = breakers.get(token, ())
        start = len(values) - behind
        matches = [len(t) for t in tails if tuple(values[start : start + len(t)]) == t]
        if matches:
            return behind - max(matches)
    return int(tokens.size)


def top_n_sigma(candidates: Candidates, view: View) -> Candidates:
    """Keep logits within n standard deviations of the largest one (llama_sampler_top_n_sigma).

    The deviation is of the logits of all candidates (https://arxiv.org/abs/2411.07641). The
    others get -inf: a dynamic temperature counts them.
    """
    n = view.options.top_n_sigma
    if n <= 0 or candidates.size < 2:
        return candidates
    logits = candidates.logits
    deviation = logits[logits > -np.inf].astype(np.float64).std()
    bound = np.float32(logits.max() - n * deviation)
    kept = np.where(logits >= bound, logits, np.float32(-np.inf))
    return Candidates(logits=kept, ids=candidates.ids, ordered=candidates.ordered)


def top_k(candidates: Candidates, view: View) -> Candidates:
    """Keep the k most likely tokens (llama_sampler_top_k, which ignores min_keep)."""
    k = view.options.top_k
    return candidates.best(k) if k > 0 else candidates


def top_p(candidates: Candidates, view: View) -> Candidates:
    """Keep the fewest tokens that together have this probability (llama_sampler_top_p)."""
    options = view.options
    if options.top_p >= 1:
        return candidates
    weights = candidates.weights()
    kept = fewest(candidates.logits, weights, options.top_p, min_count=options.min_keep)
    return candidates.keep(kept, ordered=True)


def min_p(candidates: Candidates, view: View) -> Candidates:
    """Keep tokens with this fraction of the top token's probability (llama_sampler_min_p)."""
    options = view.options
    if options.min_p <= 0:
        return candidates
    bound = candidates.logits.max() + np.float32(math.log(options.min_p))
    kept = np.flatnonzero(candidates.logits >= bound)
    if kept.size < options.min_keep:
        return candidates.best(options.min_keep)
    return candidates.keep(kept, ordered=candidates.ordered)


def typical_p(candidates: Candidates, view: View) -> Candidates:
    """Keep the tokens whose surprisal is closest to the entropy (llama_sampler_typical)."""
    options = view.options
    if options.typical_p >= 1:
        return candidates
    surprisal = -candidates.log_probabilities()
    keys = -np.abs(surprisal - np.float32(candidates.entropy()))
    weights = np.exp(-surprisal)
    kept = fewest(keys, weights, options.typical_p, min_count=options.min_keep, strictly=True)
    return candidates.keep(kept, ordered=False)


def xtc(candidates: Candidates, view: View) -> Candidates:
    """At random, drop the tokens above the threshold but the least likely (llama_sample_xtc)."""
    options = view.options
    off = options.xtc_probability <= 0 or options.xtc_threshold > 0.5
    if off or candidates.size < 2 or view.random.random() > options.xtc_probability:
        return candidates
    ordered = candidates.best(candidates.size)
    shares = np.exp(ordered.log_probabilities())
    dropped = np.count_nonzero((shares >= options.xtc_threshold) & (shares > 0)) - 1
    if dropped <= 0 or ordered.size - dropped < options.min_keep:
        return ordered
    return ordered.keep(np.arange(dropped, ordered.size), ordered=True)


def temperature(candidates: Candidates, view: View) -> Candidates:
    """Divide the logits; a temperature of 0 keeps the best only (llama_sampler_temp_ext).

    With a dynatemp_range, the divisor grows with the entropy from temperature - range to
    temperature + range (https://arxiv.org/abs/2309.02772).
    """
    options = view.options
    divisor, delta = options.temperature, options.dynatemp_range
    if delta > 0:
        if candidates.size == 1:
            return candidates
        low, high = max(0.0, divisor - delta), divisor + delta
        evenness = min(1.0, max(0.0, candidates.entropy() / math.log(candidates.size)))
        divisor = low + (high - low) * evenness**options.dynatemp_exponent
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        logits = candidates.logits / np.float32(min(divisor, _FLOAT_MAX))
        if not np.isfinite(logits.max()):  # the best logit exceeds the range of f32
            return candidates.best(1)
    return Candidates(logits=logits, ids=candidates.ids, ordered=candidates.ordered)


SAMPLERS: Mapping[str, Callable[[Candidates, View], Candidates]] = {
    "penalties": penalties,
    "dry": dry,
    "top_n_sigma": top_n_sigma,
    "top_k": top_k,
    "typ_p": typical_p,
    "top_p": top_p,
    "min_p": min_p,
    "xtc": xtc,
    "temperature": temperature,
}
