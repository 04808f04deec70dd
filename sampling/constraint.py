"""Which tokens an answer may contain: the interface between the sampler and grammars.

It knows token ids. The grammars are in text/grammars/grammar.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ConstraintFailed(Exception):
    """The request's rules allow no next token, or following them takes too much work."""


class Constraint(Protocol):
    """The rules of one answer. Owned by one request and used in the engine's thread only."""

    @property
    def finished(self) -> bool:
        """Whether the answer is complete, so that only its end may follow."""

    def allowed(self) -> NDArray[np.bool_] | None:
        """Which ids may come next, bool (V,), including those that end an answer; None for all.

        Raises ConstraintFailed.
        """

    def accept(self, token: int) -> None:
        """Take the next token, which does not end the answer; raises ConstraintFailed."""
