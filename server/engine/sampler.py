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
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    from server.engine.constraint import Constraint

# llama-server's names and order.
SAMPLERS = ("penalties", "dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """How a token is chosen. The names and defaults are llama-server's.

    temperature         0 takes the most likely token; else the logits are divided by it
    dynatemp_range      the temperature moves by so much with the entropy; 0 leaves it alone
    dynatemp_exponent   how it moves: normalised entropy to this power
    top_k               keep the k most likely; 0 keeps all
    top_p               keep the fewest that together have this probability; 1 keeps all
    min_p               keep those with at least this share of the best one's probability
    typical_p           keep those closest to the expected surprise, up to this probability; 1: all
    repeat_penalty      divides positive and multiplies negative logits of recent tokens; 1 is off
    repeat_last_n       how many tokens are recent, prompt included; 0 none, -1 all
    presence_penalty    taken from the logits of recent tokens
    frequency_penalty   taken from them once for each time they came
    dry_*               weaken the token that would prolong a repetition (DRY); multiplier 0: off
    dry_breakers        ids at which a repetition ends
    xtc_*               with this probability, drop all but the least likely of the tokens above the
                        threshold
    min_keep            the least number of tokens that a sampler leaves
    logit_bias          (id, number) pairs, added to the logits before anything else; -inf bans
    samplers            which samplers run, in this order
    ignore_eos          ban the tokens that end an answer
    min_tokens          ban them until so many tokens have come
    logprobs            how many alternatives to report beside each token; None reports nothing
    post_sampling_probs report the probabilities after the samplers, not the model's own
    """

    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_breakers: tuple[int, ...] = ()
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    min_keep: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    samplers: tuple[str, ...] = SAMPLERS
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None
    post_sampling_probs: bool = False


@dataclass(frozen=True)
class Logprobs:
    """Natural logarithms of the model's own probabilities, before any sampler changed them.

    `top` holds (id, logprob) pairs, best first.
    """

    chosen: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Sample:
    """A token that was chosen; `last` when the request's constraint lets nothing follow it."""

    token: int
    logprobs: Logprobs | None
    last: bool


class Sampler:
    """Chooses the tokens of one answer.

    `prompt` are the ids before it, `ends` those that end it.
    """

    def __init__(
        self,
        options: SamplingOptions,
        *,
        seed: int,
        prompt: Sequence[int],
        ends: Collection[int],
        constraint: Constraint | None = None,
    ) -> None:
        self._options = options
        self._random = random_state(seed)
        self._tokens = list(prompt)
        self._ends = ends
        self._constraint = constraint

    def sample(self, logits: NDArray[np.float32]) -> Sample:
        """Choose the next token by the logits, f32 (V,), left as they are, and take it as come.

        Raises FloatingPointError when the best logit is not a finite number, or ConstraintFailed.
        """
        options = self._options
        last_n = options.repeat_last_n
        recent = self._tokens[-last_n:] if last_n > 0 else self._tokens if last_n else []
        token = choose(logits, options, recent, self._random)
        self._tokens.append(token)
        logprobs = None
        if options.logprobs is not None:
            logprobs = log_probabilities(logits, token, options.logprobs)
        return Sample(token, logprobs, last=False)


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
