"""From logits to a token.

It knows logits, options, the ids that came before and a random generator. It knows no requests, no
text and no slots. Everything that a choice depends on is the request's own, so that an answer
depends on its seed and on nobody else's request. The samplers are in samplers.py.

Equal logits: the lower id is the better one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from server.sampling.candidates import Candidates, draw, total
from server.sampling.chain import SAMPLERS, View

if TYPE_CHECKING:
    from array import array
    from collections.abc import Collection

    from numpy.typing import NDArray

    from server.sampling.constraint import Constraint
    from server.sampling.options import SamplingOptions

# What a byte of eight bans adds to the logits, lowest bit first, f32 (256, 8).
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
