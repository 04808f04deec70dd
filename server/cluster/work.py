"""The messages from a front to a model replica, and the events that come back.

The clocks of two machines differ, so an event travels with its age in place of its time.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.server.engine.generation import EmbedRequest, Prefilled, Request, Started, Token
from hearthd.text.errors import NotSupported
from hearthd.text.grammars.answer_constraint import AnswerConstraint

if TYPE_CHECKING:
    from hearthd.runtime.array_bytes import Arrays
    from hearthd.server.engine.generation import Event
    from hearthd.text.grammars.answer_constraint import AnswerRules, Constraints

# A part of a block's key is enough to choose a replica: a wrong match costs time, not correctness.
KEY_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Work:
    """A request to an engine, without its deadline, which the front keeps.

    rules    the rules of the request's constraint, from which the replica makes the constraint
    blocks   the first KEY_BYTES bytes of the keys of the prompt's blocks in the prefix cache
    """

    request: Request | EmbedRequest
    rules: AnswerRules | None
    blocks: tuple[bytes, ...]

    def engine_request(self, constraints: Constraints) -> Request | EmbedRequest:
        """The request to the replica's engine."""
        if self.rules is None:
            return self.request
        assert isinstance(self.request, Request), "an embedding has no rules"
        return dataclasses.replace(self.request, constraint=constraints.constraint(self.rules))


@dataclass(frozen=True, kw_only=True)
class FunctionCall:
    """A call of an array function, with its inputs by name."""

    function: str
    inputs: Arrays


def require_tokens(request: Request | EmbedRequest) -> None:
    """Raise NotSupported for a prompt with rows of embeddings, which no replica reads."""
    if isinstance(request, Request) and request.prompt.row_segments:
        raise NotSupported("prompt: model replicas read no images and no audio")


def work_of(request: Request | EmbedRequest, *, chunk: int) -> Work:
    """The work for a request; `chunk` is the number of tokens of a block."""
    if isinstance(request, EmbedRequest):
        return Work(request=dataclasses.replace(request, deadline=None), rules=None, blocks=())
    constraint = request.constraint
    assert constraint is None or isinstance(constraint, AnswerConstraint), (
        "no other constraint is made"
    )
    return Work(
        request=dataclasses.replace(request, deadline=None, constraint=None),
        rules=None if constraint is None else constraint.rules,
        blocks=shortened(request.block_keys(chunk)),
    )


def shortened(keys: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The first KEY_BYTES bytes of each key."""
    return tuple(key[:KEY_BYTES] for key in keys)


def with_age(event: Event) -> Event:
    """The event with its age in place of its time; applied twice, the event with its time."""
    if isinstance(event, Prefilled | Started | Token):
        return dataclasses.replace(event, at=time.monotonic() - event.at)
    return event
