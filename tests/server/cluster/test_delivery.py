"""The events of one request from several replicas, and what travels between the processes."""

from __future__ import annotations

import hashlib
import pickle
from array import array
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.sampling.options import SamplingOptions
from hearthd.server.cluster.cached_blocks import SentBlocks, matching_blocks
from hearthd.server.cluster.delivery import Delivery
from hearthd.server.cluster.work import require_tokens, work_of
from hearthd.server.engine.generation import (
    AdapterUse,
    EmbedRequest,
    Failed,
    Finished,
    Request,
    Started,
    Token,
)
from hearthd.server.engine.prompt import EmbeddingRows, Prompt
from hearthd.text.errors import NotSupported
from hearthd.text.grammars.answer_constraint import AnswerRules, Constraints
from hearthd.text.grammars.grammar import Grammar
from hearthd.text.tokenizer import Tokenizer
from tests.server import fakes

if TYPE_CHECKING:
    from hearthd.server.engine.generation import Event

LIBRARY = fakes.gemma_like()
PROMPT = Prompt(tuple(range(20)))
SAMPLING = SamplingOptions(temperature=0.5, logit_bias=((3, -1.0),), dry_breakers={4: ((5,),)})


def tokens(*ids: int) -> list[Event]:
    return [Token(id_, None, at=float(at)) for at, id_ in enumerate(ids)]


def request(**fields: object) -> Request:
    values = {"prompt": PROMPT, "max_tokens": 8, "sampling": SAMPLING, "seed": 1}
    return Request(**{**values, **fields})  # type: ignore[arg-type]


def test_a_second_replica_continues_where_the_first_one_stopped() -> None:
    got: list[Event] = []
    delivery = Delivery(got.append)
    first: list[Event] = [Started(0.0, 8), *tokens(5, 6)]
    for event in first:
        assert not delivery.take(event)
    delivery.restart()
    second: list[Event] = [Started(9.0, 0), *tokens(5, 6, 7)]
    for event in second:
        assert not delivery.take(event)
    delivery.restart()
    for event in second[:2]:  # this replica is lost earlier than the others
        assert not delivery.take(event)
    delivery.restart()
    assert not any(delivery.take(event) for event in tokens(5, 6, 7, 8))
    assert delivery.take(Finished("stop"))
    assert got == [Started(0.0, 8), *tokens(5, 6, 7, 8), Finished("stop")]


def test_a_replica_that_computes_other_tokens_ends_the_answer_with_an_error() -> None:
    got: list[Event] = []
    delivery = Delivery(got.append)
    assert not any(delivery.take(event) for event in tokens(5, 6))
    delivery.restart()
    assert [delivery.take(event) for event in tokens(5, 7)] == [False, True]
    assert got[:2] == tokens(5, 6)
    assert isinstance(got[2], Failed)
    assert len(got) == 3


def test_work_is_the_same_request_in_another_process() -> None:
    tokenizer = Tokenizer(LIBRARY, bos=fakes.BOS)
    constraints = Constraints(tokenizer, vocab_size=LIBRARY.get_vocab_size(), ends=(fakes.EOS,))
    constraint = constraints.constraint(AnswerRules(grammar=Grammar("regex", "[ab]+")))
    sent = work_of(request(constraint=constraint, deadline=5.0), chunk=8)
    received = pickle.loads(pickle.dumps(sent))
    assert received == sent
    arrived = received.engine_request(constraints)
    assert arrived.constraint.rules == constraint.rules
    assert (arrived.constraint.allowed() == constraint.allowed()).all()
    assert (arrived.prompt, arrived.seed, arrived.sampling) == (PROMPT, 1, SAMPLING)
    assert arrived.deadline is None  # clocks differ: the front keeps it


def test_the_blocks_of_work_are_chained_digests_that_begin_with_the_adapter() -> None:
    def digests(start: bytes, *chunks: range) -> tuple[bytes, ...]:
        keys = [start]
        for ids in chunks:
            keys.append(hashlib.sha256(keys[-1] + array("q", ids).tobytes()).digest())
        return tuple(key[:8] for key in keys[1:])

    # The last token of a prompt is read by a decode, so it is in no block.
    chunks = (range(8), range(8, 16), range(16, 19))
    assert work_of(request(), chunk=8).blocks == digests(b"", *chunks)
    use = AdapterUse(place=1, scale=0.5, key=b"an adapter")
    assert work_of(request(adapter=use), chunk=8).blocks == digests(b"an adapter", *chunks)
    assert work_of(request(cache_prompt=False), chunk=8).blocks == ()
    assert work_of(EmbedRequest(prompt=(1, 2)), chunk=8).blocks == ()


@pytest.mark.parametrize(
    ("cached", "sent", "count"),
    [
        ((), (), 0),
        (("a", "b"), (), 2),
        (("b", "c"), (), 0),
        (("a",), ("b",), 2),
        (("a", "c"), (), 1),
    ],
)
def test_a_match_ends_at_the_first_missing_block(
    cached: tuple[str, ...], sent: tuple[str, ...], count: int
) -> None:
    blocks = (b"a", b"b", b"c")
    held = frozenset(block.encode() for block in cached)
    assert matching_blocks(blocks, held, {block.encode(): 0.0 for block in sent}) == count


def test_blocks_that_were_sent_are_forgotten_after_half_a_minute() -> None:
    sent = SentBlocks()
    sent.add([b"a", b"b"], now=0.0)
    sent.add([b"b"], now=20.0)
    assert list(sent.times) == [b"a", b"b"]
    sent.add([b"c"], now=31.0)
    assert list(sent.times) == [b"b", b"c"]


def test_nothing_follows_the_last_event() -> None:
    got: list[Event] = []
    delivery = Delivery(got.append)
    assert not delivery.take_all(tokens(5, 6))
    delivery.restart()
    assert delivery.take_all(tokens(5, 7, 8))
    assert [type(event) for event in got] == [Token, Token, Failed]


def test_a_replica_gets_no_rows_of_embeddings() -> None:
    image = EmbeddingRows(rows=np.ones((2, 4), np.float32), digest=bytes(32))
    with pytest.raises(NotSupported, match="model replicas read no images and no audio"):
        require_tokens(request(prompt=Prompt((3,), image, (4,))))
    require_tokens(request())
    require_tokens(EmbedRequest(prompt=(1, 2)))
