"""Batches: which examples are in a step, and their arrays."""

from __future__ import annotations

import numpy as np
import pytest

from hearthd.baker.tuning import batches
from hearthd.baker.tuning.batches import Batch, Bucket
from hearthd.baker.tuning.examples import Example


def example(length: int, learned: int) -> Example:
    """An example: `length` tokens are read, and the last `learned` ids are learned."""
    ids = range(100 * length, 100 * length + length + 1)
    return Example(ids=tuple(ids), learned=tuple(range(length + 1 - learned, length + 1)))


EXAMPLES = [example(5 + i % 4, 2) for i in range(9)] + [example(30 + i, 4) for i in range(6)]


def test_lengths_are_few_and_fit_every_example() -> None:
    shapes = batches.buckets(EXAMPLES, 2)
    assert [(one.length, one.rows) for one in shapes] == [(16, 8), (24, 8), (40, 8)]
    (alone,) = batches.buckets([example(30, 4)] * 5, 3)
    assert alone == Bucket(sequences=3, length=32, rows=16)


def test_an_epoch_has_every_example_once_and_depends_on_seed_and_number() -> None:
    shapes = batches.buckets(EXAMPLES, 2)
    made = batches.epoch(EXAMPLES, shapes, seed=1, number=0)
    assert sorted(i for batch in made for i in batch.examples) == list(range(len(EXAMPLES)))
    assert all(EXAMPLES[i].length <= batch.bucket.length for batch in made for i in batch.examples)
    assert made == batches.epoch(EXAMPLES, shapes, seed=1, number=0)
    assert made != batches.epoch(EXAMPLES, shapes, seed=1, number=1)
    assert made != batches.epoch(EXAMPLES, shapes, seed=2, number=0)
    order = batches.steps(EXAMPLES, shapes, accumulate=3, seed=1)
    count = batches.steps_per_epoch(EXAMPLES, shapes, accumulate=3)
    assert [batch for _ in range(count) for batch in next(order)] == made


def test_rows_are_those_before_the_learned_tokens_and_weights_add_up() -> None:
    pair = [Example(ids=(7, 8, 9, 1), learned=(2, 3)), Example(ids=(5, 6), learned=(1,))]
    batch = Batch(bucket=Bucket(sequences=3, length=4, rows=8), examples=(0, 1))
    tokens, rows, targets, weights = batches.arrays(pair, batch, total=6)
    assert tokens.tolist() == [7, 8, 9, 0, 5, 0, 0, 0, 0, 0, 0, 0]
    assert rows[:3].tolist() == [1, 2, 4]
    assert targets[:3].tolist() == [9, 1, 6]
    np.testing.assert_array_equal(weights, np.array([1, 1, 1, 0, 0, 0, 0, 0], "f4") / 6)
    assert batches.learned_tokens(pair, [batch]) == 3


@pytest.mark.parametrize("count", [1, 2, 5])
def test_no_batch_has_more_learned_tokens_than_rows(count: int) -> None:
    shapes = batches.buckets(EXAMPLES, count)
    for number in range(5):
        for batch in batches.epoch(EXAMPLES, shapes, seed=0, number=number):
            batches.arrays(EXAMPLES, batch, total=1)
            assert batches.learned_tokens(EXAMPLES, [batch]) <= batch.bucket.rows
