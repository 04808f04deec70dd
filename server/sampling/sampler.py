"""From logits to a token.

It knows logits, options, the ids that came before and a random generator. It knows no requests, no
text and no slots. Everything that a choice depends on is the request's own, so that an answer
depends on its seed and on nobody else's request. The samplers are in samplers.py.

Equal logits: the lower id is the better one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from server.sampling.candidates import Candidates, draw, total
from server.sampling.chain import SAMPLERS, View

if TYPE_CHECKING:
    from array import array
    from collections.abc import Collection

    from numpy.typing import NDArray

    from server.sampling.constraint import Constraint

Breakers = Mapping[int, tuple[tuple[int, ...], ...]]

# What a byte of eight bans adds to the logits, lowest bit first, f32 (256, 8).
_BANS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"),
    np.float32(-np.inf),
    np.float32(0),
)


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
    dry_breakers        tokens at which a repetition ends: first id to the ids that must follow it
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
    dry_breakers: Breakers = field(default_factory=dict)
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    min_keep: int = 0
    logit_bias: tuple[tuple[int, float], ...] = ()
    samplers: tuple[str, ...] = tuple(SAMPLERS)
    ignore_eos: bool = False
    min_tokens: int = 0
    logprobs: int | None = None
    post_sampling_probs: bool = False

    @property
    def needs_all_logits(self) -> bool:
        """Whether a logit far below the best one may matter: reported, lifted, or not cut off."""
        changed = (
            self.logit_bias,
            self.ignore_eos,
            self.min_tokens,
            self.repeat_penalty != 1,
            self.presence_penalty,
            self.frequency_penalty,
            self.dry_multiplier,
        )
        flattened = (self.temperature > 1, self.dynatemp_range, self.typical_p < 1)
        cut = self.temperature == 0 or self.top_k or self.top_p < 1 or self.min_p
        return self.logprobs is not None or any(changed) or any(flattened) or not cut


@dataclass(frozen=True)
class Logprobs:
    """Natural logarithms of probabilities. `top` holds (id, logprob) pairs, best first."""

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

    `tokens` are those of the sequence, 64-bit: now the prompt, and after each call of `sample` the
    caller appends the chosen token. `ends` are the ids that end the answer.
    """

    def __init__(
        self,
        options: SamplingOptions,
        *,
        seed: int,
        tokens: array[int],
        ends: Collection[int],
        constraint: Constraint | None = None,
    ) -> None:
        self._options = options
        self._random = random_state(seed)
        self._tokens = tokens
        self._min_length = len(tokens) + options.min_tokens
        self._ends = ends
        self._constraint = constraint
        self._chain = tuple(SAMPLERS[name] for name in options.samplers)
        # Whether it is to be given all logits exactly, and not only those near the best one.
        self.exact = constraint is not None or options.needs_all_logits

    def sample(self, logits: NDArray[np.float32]) -> Sample:
        """Choose the next token by the logits, f32 (V,), left as they are, and take it as come.

        Raises FloatingPointError when the best logit is not a finite number, ConstraintFailed when
        a bias or the constraint leaves no token.
        """
        best = logits[logits.argmax()]  # of numbers and what is none, that is what is none
        if not np.isfinite(best):
            raise FloatingPointError(f"the model's largest logit is {best}, wanted a finite number")
        candidates = self._chosen_from(self._permitted(logits))
        # A single candidate takes no number from the generator.
        position = draw(candidates.weights(), self._random.random()) if candidates.size > 1 else 0
        token = candidates.id(position)
        return Sample(token, self._logprobs(logits, candidates, position), self._accept(token))

    def _permitted(self, logits: NDArray[np.float32]) -> Candidates:
        """All tokens; impossible are those that a bias, the minimum or the constraint bans."""
        options = self._options
        changed = logits
        if options.logit_bias:
            changed = logits.copy()
            for id_, bias in options.logit_bias:
                changed[id_] += np.float32(bias)
        if self._ends and (options.ignore_eos or len(self._tokens) < self._min_length):
            changed = logits.copy() if changed is logits else changed
            changed[list(self._ends)] = -np.inf
        allowed = self._constraint.allowed() if self._constraint else None
        if allowed is not None:
            # Without a branch for each of them, which would take ten times as long.
            bans = np.packbits(~allowed, bitorder="little")
            changed = changed + _BANS.take(bans, axis=0).reshape(-1)[: logits.size]
        candidates = Candidates(logits=changed)
        return candidates if changed is logits else candidates.possible()

    def _chosen_from(self, candidates: Candidates) -> Candidates:
        # The view must be gone before the next append: an array that is viewed cannot grow.
        tokens = np.frombuffer(self._tokens, np.int64)
        view = View(options=self._options, tokens=tokens, random=self._random)
        for sampler in self._chain:
            candidates = sampler(candidates, view)
        return candidates

    def _logprobs(
        self, logits: NDArray[np.float32], candidates: Candidates, position: int
    ) -> Logprobs | None:
        options = self._options
        if options.logprobs is None:
            return None
        if options.post_sampling_probs:
            return log_probabilities(candidates, position, options.logprobs)
        whole = Candidates(logits=logits)
        return log_probabilities(whole, candidates.id(position), options.logprobs)

    def _accept(self, token: int) -> bool:
        if self._constraint is None or token in self._ends:
            return False
        self._constraint.accept(token)
        return self._constraint.finished


def random_state(seed: int) -> np.random.Generator:
    """The random state of one request; equal seeds give equal states on every machine."""
    return np.random.Generator(np.random.Philox(seed))


def log_probabilities(candidates: Candidates, position: int, alternatives: int) -> Logprobs:
    """The log-probabilities of one candidate and of the best ones that are possible at all."""
    top = candidates.best(alternatives) if alternatives else candidates.first(0)
    best = float(candidates.logits.max())
    log_sum = float(np.log(total(candidates.weights())))
    found = ((top.id(i), float(logit) - best - log_sum) for i, logit in enumerate(top.logits))
    return Logprobs(
        chosen=float(candidates.logits[position]) - best - log_sum,
        top=tuple((id_, logprob) for id_, logprob in found if logprob > -np.inf),
    )
