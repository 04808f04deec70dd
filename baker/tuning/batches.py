"""Which examples a step learns, and as what arrays: padded to one of a few lengths.

The order depends on the seed and the epoch alone, so that a run that was ended goes on with the
same batches.
"""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hearthd.baker.tuning.examples import Example

    Array = NDArray[Any]

_MULTIPLE = 8  # lengths and numbers of rows are multiples of it
_MAX_BUCKETS = 3
# A shorter length is worth a program of its own if this share of the examples fit into it.
_MIN_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """The shape of a batch: `sequences` of `length` tokens, and `rows` tokens that are learned."""

    sequences: int
    length: int
    rows: int

    @property
    def name(self) -> str:
        """A name for its functions."""
        return str(self.length)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Examples, by index, of one bucket."""

    bucket: Bucket
    examples: tuple[int, ...]


def buckets(examples: Sequence[Example], sequences: int) -> tuple[Bucket, ...]:
    """At most three shapes, the shortest first; the last one fits every example."""
    lengths = sorted(example.length for example in examples)
    chosen = [_rounded(lengths[-1])]
    while len(chosen) < _MAX_BUCKETS and (half := _rounded(chosen[0] // 2)) < chosen[0]:
        if bisect.bisect_right(lengths, half) < _MIN_SHARE * len(lengths):
            break
        chosen.insert(0, half)
    buckets = []
    for length in chosen:
        # Examples that are left over from a shorter bucket join a longer one.
        answers = [len(example.learned) for example in examples if example.length <= length]
        rows = _rounded(sum(sorted(answers)[-sequences:]))
        buckets.append(Bucket(sequences=sequences, length=length, rows=rows))
    return tuple(buckets)


def _rounded(count: int) -> int:
    return -(-count // _MULTIPLE) * _MULTIPLE


def epoch(
    examples: Sequence[Example], shapes: Sequence[Bucket], *, seed: int, number: int
) -> list[Batch]:
    """The batches of an epoch in random order: every example is in one of them, once."""
    rng = np.random.default_rng([seed, number])
    waiting: dict[int, list[int]] = {shape.length: [] for shape in shapes}
    for index in rng.permutation(len(examples)).tolist():
        fitting = next(shape for shape in shapes if examples[index].length <= shape.length)
        waiting[fitting.length].append(index)
    batches, remaining = [], list[int]()
    for shape in shapes:
        queue = [*remaining, *waiting[shape.length]]
        last = shape is shapes[-1]
        batched = len(queue) if last else len(queue) // shape.sequences * shape.sequences
        batches += [
            Batch(bucket=shape, examples=tuple(queue[at : at + shape.sequences]))
            for at in range(0, batched, shape.sequences)
        ]
        remaining = queue[batched:]
    return [batches[i] for i in rng.permutation(len(batches)).tolist()]


def steps(
    examples: Sequence[Example], shapes: Sequence[Bucket], *, accumulate: int, seed: int
) -> Iterator[list[Batch]]:
    """The batches of each step, epoch after epoch without end."""
    number = 0
    while True:
        batches = epoch(examples, shapes, seed=seed, number=number)
        for at in range(0, len(batches), accumulate):
            yield batches[at : at + accumulate]
        number += 1


def steps_per_epoch(
    examples: Sequence[Example], shapes: Sequence[Bucket], *, accumulate: int
) -> int:
    """The number of steps in which each example is learned once."""
    return math.ceil(len(epoch(examples, shapes, seed=0, number=0)) / accumulate)


def learned_tokens(examples: Sequence[Example], batches: Sequence[Batch]) -> int:
    """The number of tokens that some batches learn."""
    return sum(len(examples[i].learned) for batch in batches for i in batch.examples)


def arrays(examples: Sequence[Example], batch: Batch, *, total: int) -> tuple[Array, ...]:
    """Tokens, rows, targets and weights of a batch: see models/decoder/next_token_loss.py.

    Each learned token has the weight 1 / `total`, so that the losses of the batches of a step add
    up to the mean over all their tokens.
    """
    shape = batch.bucket
    tokens = np.zeros((shape.sequences, shape.length), np.int32)
    rows, targets = np.zeros((2, shape.rows), np.int32)
    weights = np.zeros(shape.rows, np.float32)
    count = 0
    for sequence, index in enumerate(batch.examples):
        example = examples[index]
        tokens[sequence, : example.length] = example.ids[:-1]
        new = slice(count, count + len(example.learned))
        rows[new] = np.array(example.learned) - 1 + sequence * shape.length
        targets[new] = [example.ids[at] for at in example.learned]
        weights[new] = 1 / total
        count = new.stop
    return tokens.reshape(-1), rows, targets, weights
