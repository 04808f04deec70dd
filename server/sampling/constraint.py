"""What a request may say next: the seam between the sampler and whatever holds the rules.

It knows token ids. It knows no grammar; server/text/grammar.py does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ConstraintFailed(Exception):
    """A request's own rules leave no token that could come next, or are too much work to follow."""


class Constraint(Protocol):
    """The rules of one answer. Owned by one request and used in the engine's thread only."""

    @property
    def finished(self) -> bool:
        """Whether the answer is complete and nothing but its end may follow."""

    def allowed(self) -> NDArray[np.bool_] | None:
        """Which ids may come next, bool (V,), the ends of an answer among them; None: all of them.

        Raises ConstraintFailed.
        """

    def accept(self, token: int) -> None:
        """Take the token that came, which is no end of an answer; raises ConstraintFailed."""
