"""Trains the layer of models/decoder/drafting/drafter.py; the model is frozen."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save
from typing_extensions import override

from hearthd.baker.atomic_file import write_atomically
from hearthd.baker.tuning import batches
from hearthd.baker.tuning.training_program import (
    TrainingTask,
    training_program,
    with_frozen_weights,
)
from hearthd.bundle import DRAFTER
from hearthd.models.decoder.drafting.drafter import (
    DEPTH,
    Drafter,
    drafter_loss_graph,
    frozen_graph,
    states_graph,
)
from hearthd.runtime.drafter_file import HEAD_TOKENS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.tuning.batches import Batch, Bucket
    from hearthd.baker.tuning.examples import Example
    from hearthd.baker.tuning.training_program import Trainer, TrainingOptions, TrainingProgram
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture

    Array = NDArray[Any]

MAX_HEAD = 4096
_ROWS = 16  # rows of a stored matrix are a multiple of this


def frequent_tokens(examples: Sequence[Example], vocab_size: int) -> NDArray[np.int32]:
    """The tokens that are learned most often in the examples, i32 (T,), ascending.

    T is a multiple of 16, at most MAX_HEAD. If fewer tokens are learned, those with the lowest ids
    are added.
    """
    learned = [example.ids[at] for example in examples for at in example.learned]
    counts = np.bincount(learned, minlength=vocab_size)
    count = min(MAX_HEAD, vocab_size) // _ROWS * _ROWS
    return np.sort(np.argsort(-counts, kind="stable")[:count]).astype(np.int32)


@dataclass(frozen=True, kw_only=True)
class DrafterTask(TrainingTask):
    """Tunes a drafter that can draft `head_tokens`, i32 (T,), ascending.

    states  hidden states of each example, f32 (length, E), which `read` computes
    """

    architecture: Architecture[Any]
    config: ModelConfig
    head_tokens: NDArray[np.int32]
    output: str = DRAFTER
    states: dict[Example, Array] = field(default_factory=dict)

    @override
    def traced(self, options: TrainingOptions) -> TrainingProgram:
        model, shapes = self.architecture.model(self.config), options.shapes
        tokens = len(self.head_tokens)
        graphs = [
            *(frozen_graph(model, shape, head_tokens=tokens) for shape in shapes),
            *(states_graph(model, shape) for shape in shapes),
        ]
        stored = with_frozen_weights(graphs, model.parameters(), options)
        frozen, states = stored.graphs[: len(shapes)], stored.graphs[len(shapes) :]
        drafter = Drafter(self.config.hidden, tokens)
        losses = [drafter_loss_graph(graph, drafter) for graph in frozen]
        return training_program(
            [(loss, drafter.layer_parameters()) for loss in losses],
            [*states, *(losses if options.validated else ())],
            stored.weights,
            options,
        )

    @override
    def first(self, program: TrainingProgram, seed: int) -> Mapping[str, Array]:
        """Weights with which the drafter's states are zeros.

        Norms are ones. The two matrices that compute the state are zeros, and the others are normal
        with variance 1 / inputs.
        """
        weights = {}
        for number, (name, type_) in enumerate(program.adapters.items()):
            if len(type_.shape) == 1:
                weights[name] = np.ones(type_.shape, np.float32)
                continue
            rng = np.random.default_rng([seed, number])
            is_before_states = type_.shape[0] == self.config.hidden
            scale = 0.0 if is_before_states else 1 / math.sqrt(type_.shape[1])
            weights[name] = (rng.normal(size=type_.shape) * scale).astype(np.float32)
        return weights

    @override
    def read(
        self, trainer: Trainer, examples: Sequence[Example], shapes: Sequence[Bucket], folder: Path
    ) -> None:
        """Compute the hidden states of all examples, once, into a file that stays mapped."""
        hidden = self.config.hidden
        count = sum(example.length for example in examples)
        path = folder / "states.f32"
        rows = np.memmap(path, np.float32, "w+", shape=(count, hidden))
        with suppress(PermissionError):  # Windows removes no mapped file; the folder is temporary
            path.unlink()
        start = 0
        for batch in batches.epoch(examples, shapes, seed=0, number=0):
            chosen = [examples[index] for index in batch.examples]
            states = trainer.states(batch.bucket, _tokens(chosen, batch.bucket), hidden)
            for example, computed in zip(chosen, states, strict=False):
                stop = start + example.length
                rows[start:stop] = computed[: example.length]
                self.states[example] = rows[start:stop]
                start = stop

    @override
    def arrays(self, examples: Sequence[Example], batch: Batch, *, total: int) -> tuple[Array, ...]:
        """States, rows, following, head and weights, as drafter_loss_graph takes them.

        The learned token p of a sequence is first drafted from the state after token p - 2 and the
        embedding of token p - 1.
        """
        shape = batch.bucket
        states = np.zeros((shape.sequences, shape.length, self.config.hidden), np.float32)
        rows = np.zeros(shape.rows, np.int32)
        following = np.zeros((DEPTH, shape.rows), np.int32)
        weights = np.zeros((DEPTH, shape.rows), np.float32)
        row = 0
        for sequence, index in enumerate(batch.examples):
            example = examples[index]
            states[sequence, : example.length] = self.states[example]
            learned = set(example.learned)
            for start in (at - 2 for at in example.learned if at >= 2):
                rows[row] = start + sequence * shape.length
                for depth in range(DEPTH):
                    at = start + 2 + depth
                    if at not in learned:
                        break
                    following[depth, row] = example.ids[at - 1]
                    weights[depth, row] = 1 / total
                row += 1
        flat = states.reshape(-1, self.config.hidden)
        return flat, rows, following.reshape(-1), self.head_tokens, weights.reshape(-1)

    @override
    def write(self, folder: Path, trained: Mapping[str, Array]) -> None:
        weights = {name: weight.astype(np.float16) for name, weight in trained.items()}
        data = save({HEAD_TOKENS: self.head_tokens.astype(np.float32), **weights})
        write_atomically(folder, {self.output: data})


def _tokens(examples: Sequence[Example], shape: Bucket) -> NDArray[np.int32]:
    """The tokens of examples in the sequences of a shape, i32 (sequences * length,)."""
    tokens = np.zeros((shape.sequences, shape.length), np.int32)
    for sequence, example in enumerate(examples):
        tokens[sequence, : example.length] = example.ids[:-1]
    return tokens.reshape(-1)
