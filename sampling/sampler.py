"""Choose a token from logits.

It knows logits, options, the tokens so far and a random generator. It knows no requests, no text
and no slots. The choice depends on nothing else, so an answer depends on its own seed and never on
other requests. The samplers of the chain are in chain.py.

Of equal logits, the one with the lower id is better.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.sampling.candidates import Candidates, draw, total
from hearthd.sampling.chain import SAMPLERS, View
from hearthd.sampling.feedback import feedback_of

if TYPE_CHECKING:
    from array import array
    from collections.abc import Collection

    from numpy.typing import NDArray

    from hearthd.sampling.constraint import Constraint
    from hearthd.sampling.feedback import Feedback
    from hearthd.sampling.options import SamplingOptions

# By a byte of eight bits, lowest first, where a bit bans a token: what is added to the eight
# logits, f32 (256, 8).
_BANS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"),
    np.float32(-np.inf),
    np.float32(0),
)


@dataclass(frozen=True)
class Logprobs:
    """Natural logarithms of probabilities. `top` holds (id, logprob) pairs, best first."""

    chosen: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class SampledToken:
    """A chosen token; `last` if the constraint allows no token after it."""

    token: int
    logprobs: Logprobs | None
    last: bool


class Sampler:
    """Chooses the tokens of one answer.

    `tokens` are the sequence's, 64-bit: now the prompt, and after each call of `sample` the
    caller appends the chosen token. The samplers skip negative ones, of positions without a token.
    `ends` are the ids that end the answer.
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
        self._skips = min(tokens, default=0) < 0
        self._min_length = len(tokens) + options.min_tokens
        self._ends = ends
        self._constraint = constraint
        self._chain = tuple(SAMPLERS[name] for name in options.chain)
        self._feedback: Feedback | None = None
        # How far below the best logit others must be exact, in nats; None if all must be.
        self.margin = None if constraint is not None else options.logit_margin

    def sample(self, logits: NDArray[np.float32]) -> SampledToken:
        """Choose the next token from logits, f32 (V,), which are not changed.

        The constraint takes the token. Raises FloatingPointError if the best logit is not finite,
        ConstraintFailed if a bias or the constraint leaves no token.
        """
        best = logits[logits.argmax()]  # NaN if there is one
        if not np.isfinite(best):
            raise FloatingPointError(f"the largest logit: got {best}, expected a finite number")
        candidates, position = self._draw(self._chosen_from(self._permitted(logits)), logits.size)
        token = candidates.id(position)
        return SampledToken(
            token, self._logprobs(logits, candidates, position), self._accept(token)
        )

    def _draw(self, candidates: Candidates, vocabulary: int) -> tuple[Candidates, int]:
        """The candidates of the draw, and the position of the chosen one."""
        if self._feedback is None:
            self._feedback = feedback_of(self._options, vocabulary)
        drawn = candidates if self._feedback is None else self._feedback.reshape(candidates)
        # A single candidate consumes no random number.
        position = draw(drawn.weights(), self._random.random()) if drawn.size > 1 else 0
        if self._feedback is not None:
            self._feedback.observe(candidates, drawn, position)
        return drawn, position

    def _permitted(self, logits: NDArray[np.float32]) -> Candidates:
        """All tokens; those that a bias, min_tokens or the constraint bans have a logit of -inf."""
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
            # A lookup by eight bans; np.where, which branches per token, takes ten times as long.
            bans = np.packbits(~allowed, bitorder="little")
            changed = changed + _BANS.take(bans, axis=0).reshape(-1)[: logits.size]
        candidates = Candidates(logits=changed)
        return candidates if changed is logits else candidates.possible()

    def _chosen_from(self, candidates: Candidates) -> Candidates:
        # The view must be gone before the next append: an array that is viewed cannot grow.
        tokens = np.frombuffer(self._tokens, np.int64)
        if self._skips:
            tokens = tokens[tokens >= 0]
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
        unfiltered = Candidates(logits=logits)
        return log_probabilities(unfiltered, candidates.id(position), options.logprobs)

    def _accept(self, token: int) -> bool:
        if self._constraint is None or token in self._ends:
            return False
        self._constraint.accept(token)
        return self._constraint.finished


def random_state(seed: int) -> np.random.Generator:
    """The random generator of one request; equal seeds give equal numbers on every machine."""
    return np.random.Generator(np.random.Philox(seed))


def log_probabilities(candidates: Candidates, position: int, alternatives: int) -> Logprobs:
    """The log-probabilities of one candidate, and of the best ones that are not impossible."""
    top = candidates.best(alternatives) if alternatives else candidates.first(0)
    best = float(candidates.logits.max())
    log_sum = float(np.log(total(candidates.weights())))
    pairs = ((top.id(i), float(logit) - best - log_sum) for i, logit in enumerate(top.logits))
    return Logprobs(
        chosen=float(candidates.logits[position]) - best - log_sum,
        top=tuple((id_, logprob) for id_, logprob in pairs if logprob > -np.inf),
    )
