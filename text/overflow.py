"""What becomes of a prompt that does not fit in the context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Overflow: TypeAlias = Literal["error", "truncate-middle"]

# Of the context, what is kept free for the answer if the request does not ask for less; and of the
# tokens that are kept, those at the start, where the instructions are.
_ANSWER_SHARE, _START_SHARE = 0.25, 0.25


def prompt_room(context: int, max_tokens: int | None) -> int:
    """The tokens of a context that a prompt can take.

    There is room for `max_tokens` of an answer, or for a quarter of the context if that is less.
    """
    room = max(1, int(context * _ANSWER_SHARE))
    return context - (room if max_tokens is None else min(max(1, max_tokens), room))


def without_oldest(prompt: Sequence[int], *, context: int, keep_first: int) -> tuple[int, ...]:
    """A prompt of more tokens than fit, shortened as Ollama does.

    Its first tokens stay, and its last ones, which fill half of the rest of the context.
    """
    first = min(keep_first, context - 1)
    last = context - first - max((context - first) // 2, 1)
    return (*prompt[:first], *prompt[len(prompt) - last :])


def without_middle(
    prompt: Sequence[int], *, context: int, max_tokens: int | None
) -> tuple[int, ...]:
    """A prompt of more tokens than fit, without those in its middle."""
    kept = prompt_room(context, max_tokens)
    start = int(kept * _START_SHARE)
    return (*prompt[:start], *prompt[len(prompt) - (kept - start) :])
