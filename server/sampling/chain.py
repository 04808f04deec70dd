"""The samplers of a chain, each a small function from candidates to candidates.

They follow llama.cpp (src/llama-sampler.cpp, whose functions the docstrings name), where the order
of a chain is a request's own (common/sampling.cpp, common_sampler_init). A sampler that is off
returns what it was given. It knows no request: what a sampler may look at is a `View`.

Two things differ on purpose. Of equal logits the lower id is the better one; there it is whatever
the sort left. And what a grammar or a bias has banned stays banned, where there a threshold of 0 or
a probability of 0 can make it the only one left, or no number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from server.sampling.candidates import Candidates, fewest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from server.sampling.options import SamplingOptions

_LARGEST = float(np.finfo(np.float32).max)
_FLOAT_MAX_LOG = 88.7228391  # of DRY's exponent, as in llama.cpp


@dataclass(frozen=True, kw_only=True)
class View:
    """What a sampler may look at: the options, the tokens before, i64 (t,), and chance."""

    options: SamplingOptions
    tokens: NDArray[np.int64]
    random: np.random.Generator


def _last(tokens: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The last tokens, all of them for -1."""
    return tokens if count < 0 else tokens[max(0, tokens.size - count) :]


def penalties(candidates: Candidates, view: View) -> Candidates:
    """Weaken what came: by a factor, once, and once for each time (llama_sampler_penalties)."""
    options = view.options
    recent = _last(view.tokens, options.repeat_last_n)
    repeat, presence = options.repeat_penalty, options.presence_penalty
    off = repeat == 1 and presence == 0 and options.frequency_penalty == 0
    if off or recent.size == 0:
        return candidates
    ids, counts = np.unique(recent, return_counts=True)
    taken = (counts * options.frequency_penalty + presence).astype(np.float32)

    def weaken(logits: NDArray[np.float32], which: NDArray[np.int64]) -> NDArray[np.float32]:
        return np.where(logits <= 0, logits * repeat, logits / repeat) - taken[which]

    return candidates.change(ids, weaken)


def dry(candidates: Candidates, view: View) -> Candidates:
    """Weaken the tokens that would prolong a repetition ("don't repeat yourself").

    multiplier * base ** (length - allowed), where `length` is that of the longest end of the tokens
    that came before somewhere, followed by this token (llama_sampler_dry, after koboldcpp #982).
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
    powers = np.minimum(powers, _longest_power(options.dry_base))
    with np.errstate(over="ignore"):
        taken = (options.dry_multiplier * options.dry_base**powers).astype(np.float32)
    return candidates.change(ids, lambda logits, which: logits - taken[which])


def _longest_power(base: float) -> float:
    """Beyond it the penalty does not grow, for it would be no float."""
    return int(_FLOAT_MAX_LOG / math.log(base)) if base > 1.000001 else math.inf


def _repetitions(tokens: NDArray[np.int64], options: SamplingOptions) -> dict[int, int]:
    """By token: how many of the last tokens it has followed before; at least the allowed length."""
    allowed = options.dry_allowed_length
    unbroken = _unbroken(tokens, options.dry_breakers)
    if tokens.size <= allowed or unbroken < allowed:
        return {}
    limit = min(unbroken, allowed + _longest_power(options.dry_base))
    longest = np.zeros(tokens.size - 1, np.int64)
    # The places where the last 0, 1, 2, ... tokens came before, by where they end.
    ends, length = np.arange(tokens.size - 1), 0
    while ends.size and length < limit:
        ends = ends[ends >= length]
        ends = ends[tokens[ends - length] == tokens[-1 - length]]
        length += 1
        longest[ends] = length
    ends = np.flatnonzero(longest >= allowed)
    ends = ends[np.argsort(longest[ends], kind="stable")]  # the longest one of a token wins
    return dict(zip(tokens[ends + 1].tolist(), longest[ends].tolist(), strict=True))


def _unbroken(
    tokens: NDArray[np.int64], breakers: Mapping[int, tuple[tuple[int, ...], ...]]
) -> int:
    """How many tokens at the end stand behind the last breaker."""
    values = tokens.tolist() if breakers else []
    for behind, token in enumerate(reversed(values)):
        tails = breakers.get(token, ())
        start = len(values) - behind
        matches = [len(t) for t in tails if tuple(values[start : start + len(t)]) == t]
        if matches:
            return behind - max(matches)
    return int(tokens.size)


def top_k(candidates: Candidates, view: View) -> Candidates:
    """Keep the k most likely (llama_sampler_top_k, which knows no min_keep)."""
    k = view.options.top_k
    return candidates.best(k) if k > 0 else candidates


def top_p(candidates: Candidates, view: View) -> Candidates:
    """Keep the fewest that together have this probability (llama_sampler_top_p)."""
    options = view.options
    if options.top_p >= 1:
        return candidates
    weights = candidates.weights()
    kept = fewest(candidates.logits, weights, options.top_p, least=options.min_keep)
    return candidates.keep(kept, ordered=True)


def min_p(candidates: Candidates, view: View) -> Candidates:
    """Keep those with this share of the best one's probability (llama_sampler_min_p)."""
    options = view.options
    if options.min_p <= 0:
        return candidates
    bound = candidates.logits.max() + np.float32(math.log(options.min_p))
    kept = np.flatnonzero(candidates.logits >= bound)
    if kept.size < options.min_keep:
        return candidates.best(options.min_keep)
    return candidates.keep(kept, ordered=candidates.ordered)


def typical_p(candidates: Candidates, view: View) -> Candidates:
    """Keep those whose surprise is closest to the entropy (llama_sampler_typical)."""
    options = view.options
    if options.typical_p >= 1:
        return candidates
    surprise = -candidates.log_probabilities()
    keys = -np.abs(surprise - np.float32(candidates.entropy()))
    weights = np.exp(-surprise)
    kept = fewest(keys, weights, options.typical_p, least=options.min_keep, strictly=True)
    return candidates.keep(kept, ordered=False)


def xtc(candidates: Candidates, view: View) -> Candidates:
    """By chance, drop the most likely but for the last above the threshold (llama_sample_xtc)."""
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
    """Divide the logits; 0 keeps the best alone (llama_sampler_temp_ext).

    With a dynatemp_range the divisor grows with the entropy, over the range about the temperature
    (https://arxiv.org/abs/2309.02772).
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
        logits = candidates.logits / np.float32(min(divisor, _LARGEST))
        if not np.isfinite(logits.max()):  # so cold that the best one leaves the range of f32
            return candidates.best(1)
    return Candidates(logits=logits, ids=candidates.ids, ordered=candidates.ordered)


SAMPLERS: Mapping[str, Callable[[Candidates, View], Candidates]] = {
    "penalties": penalties,
    "dry": dry,
    "top_k": top_k,
    "typ_p": typical_p,
    "top_p": top_p,
    "min_p": min_p,
    "xtc": xtc,
    "temperature": temperature,
}
