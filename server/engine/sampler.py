"""From logits to a token.

It knows logits, options, the ids that came before and a random generator. It knows no requests, no
text and no slots. The samplers come in llama-server's order: repeat penalty, top_k, top_p, min_p,
temperature. Whatever the options, one sampled token takes one number from the generator and a
greedy one takes none, so that an answer depends on its own seed and on nothing else.

Equal logits: the lower id is the better one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection

    from numpy.typing import NDArray

# The repeat penalty looks this many tokens back, prompt included (llama-server's default).
REPEAT_LAST_N = 64


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How a token is chosen.

    temperature     0 takes the most likely token; else the logits are divided by it
    top_k           keep the k most likely; 0 keeps all
    top_p           keep the fewest that together have this probability; 1 keeps all
    min_p           keep those with at least this share of the best one's probability; 0 keeps all
    repeat_penalty  divides positive and multiplies negative logits of recent tokens; 1 is off
    logprobs        how many alternatives to report beside each token; None reports nothing
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repeat_penalty: float
    logprobs: int | None


@dataclass(frozen=True)
class Logprobs:
    """Natural logarithms of the model's own probabilities, before any sampler changed them.

    `top` holds (id, logprob) pairs, best first.
    """

    chosen: float
    top: tuple[tuple[int, float], ...]


def random_state(seed: int) -> np.random.Generator:
    """The random state of one request; equal seeds give equal states on every machine."""
    return np.random.Generator(np.random.Philox(seed))


def choose(
    logits: NDArray[np.float32],
    options: SamplingOptions,
    recent: Collection[int],
    generator: np.random.Generator,
) -> int:
    """The next token's id.

    logits   f32 (V,), left as they are
    recent   the ids that the repeat penalty applies to

    Raises FloatingPointError when the best logit is not a finite number.
    """
    best = logits.max()
    if not np.isfinite(best):
        raise FloatingPointError(f"the model's largest logit is {best}, wanted a finite number")
    if options.repeat_penalty != 1 and recent:
        logits = _penalised(logits, recent, options.repeat_penalty)
    if options.temperature == 0:
        return int(logits.argmax())
    ids = candidates(logits, options)
    return int(ids[_draw(logits[ids], options.temperature, generator)])


def candidates(logits: NDArray[np.float32], options: SamplingOptions) -> NDArray[np.int64]:
    """The ids that top_k, top_p and min_p leave, at least one, i64 (n,)."""
    ids = np.arange(logits.size)
    if 0 < options.top_k < logits.size:
        ids = _largest(logits, options.top_k)
    if options.top_p < 1:
        ids = ids[_nucleus(logits[ids], options.top_p)]
    if options.min_p > 0:
        values = logits[ids].astype(np.float64)
        ids = ids[values >= values.max() + np.log(options.min_p)]
    return ids


def log_probabilities(logits: NDArray[np.float32], token: int, alternatives: int) -> Logprobs:
    """The log-probability of a token and of the `alternatives` best ones; logits are f32 (V,)."""
    best = logits.max()
    # f32 exponentials summed in f64 are right to 1e-7, at an eighth of the time of f64 throughout.
    log_sum = float(np.log(np.exp(logits - best).sum(dtype=np.float64)))
    count = min(alternatives, logits.size)

    def logprob(id_: int) -> float:
        return float(logits[id_]) - float(best) - log_sum

    top = _largest(logits, count).tolist() if count else []
    return Logprobs(chosen=logprob(token), top=tuple((id_, logprob(id_)) for id_ in top))


def _penalised(
    logits: NDArray[np.float32], recent: Collection[int], penalty: float
) -> NDArray[np.float32]:
    ids = np.fromiter(set(recent), np.int64)
    values = logits[ids]
    penalised = logits.copy()
    penalised[ids] = np.where(values > 0, values / penalty, values * penalty)
    return penalised


def _largest(values: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """The positions of the `count` largest values, best first, i64 (count,)."""
    # A partition finds the smallest value to keep; only what reaches it is sorted.
    smallest = np.partition(values, -count)[-count]
    positions = np.flatnonzero(values >= smallest)
    order = np.argsort(-values[positions], kind="stable")
    return positions[order][:count]


def _nucleus(values: NDArray[np.float32], share: float) -> NDArray[np.int64]:
    """The positions of the fewest largest values that hold `share` of the probability."""
    weights = np.exp(values - values.max())
    goal = share * weights.sum(dtype=np.float64)
    count = 64
    while True:
        best = _largest(values, min(count, values.size))
        reached = np.cumsum(weights[best], dtype=np.float64)
        if reached[-1] >= goal or best.size == values.size:
            return best[: np.searchsorted(reached, goal) + 1]
        count *= 8


def _draw(values: NDArray[np.float32], temperature: float, generator: np.random.Generator) -> int:
    """A position drawn with the probabilities of softmax(values / temperature)."""
    shifted = values.astype(np.float64) - float(values.max())
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the best to -inf
        reached = np.cumsum(np.exp(shifted / temperature))
    return int(np.searchsorted(reached, generator.random() * reached[-1], side="right"))
