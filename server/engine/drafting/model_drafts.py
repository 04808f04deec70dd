"""Drafts by the drafter of a bundle: see `DraftingReader` of the runtime."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.server.engine.drafting.drafts import Acceptance, DraftSource

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.runtime.interface import Runtime
    from hearthd.server.engine.sequence import Sequence

# Bounds of the levels of a drafted token, by the probability that the drafter gives it, and the
# fraction of each level that is assumed to be accepted.
_LEVELS = (0.2, 0.4, 0.6, 0.75, 0.9, 0.97)
_PRIOR_ACCEPTANCE = dict(enumerate((0.1, 0.3, 0.5, 0.65, 0.8, 0.9, 0.95)))


class ModelDrafts(DraftSource):
    """Drafts the next tokens of one sequence."""

    def __init__(self, runtime: Runtime, sequence: Sequence) -> None:
        self._runtime, self._sequence = runtime, sequence
        self._acceptance = Acceptance(_PRIOR_ACCEPTANCE)
        # The latest draft: tokens with their levels, and the length of the sequence before it.
        self._drafted: list[tuple[int, int]] = []
        self._start = 0

    @property
    @override
    def is_free(self) -> bool:
        return False

    @override
    def draft(self, max_tokens: int) -> Iterator[tuple[int, float]]:
        """One call of the drafter for each token; nothing where the runtime's drafter has none."""
        self._catch_up()
        sequence = self._sequence
        self._start = len(sequence.tokens)
        drafted = self._runtime.draft(sequence.slot, sequence.tokens[-1], sequence.position)
        for token, probability in drafted:
            if len(self._drafted) == max_tokens:
                return
            level = bisect.bisect(_LEVELS, probability)
            self._drafted.append((token, level))
            yield token, self._acceptance.rate(level)

    def _catch_up(self) -> None:
        """Compare the latest draft with the tokens that have come."""
        for at, (token, level) in enumerate(self._drafted, self._start):
            if at >= len(self._sequence.tokens):
                break
            accepted = self._sequence.tokens[at] == token
            self._acceptance.observe(level, accepted=accepted)
            if not accepted:
                break
        self._drafted.clear()
