"""What a language model is trained to make small: the cross-entropy of each next token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.decoder.entry_points import read
from models.dsl import functions as f
from models.dsl import ops
from models.dsl.trace import trace
from models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from models.decoder.entry_points import Decoder
    from models.dsl.graph import Graph, Tensor


def next_token_loss(
    model: Decoder, tokens: Tensor, targets: Tensor, *, sequences: int = 1
) -> Tensor:
    """The mean cross-entropy of the targets, f32 ().

    tokens     i32 (N,): sequences of equal length, one after the other, each from position 0
    targets    i32 (N,): the token that follows each
    """
    length = tokens.shape[0] // sequences
    start = ops.full(shape=(1,), dtype=DType.I32, value=0)
    caches = []
    for layer in range(model.config.layers):
        shape = (length, model.cache_width(layer))
        empty = ops.full(shape=shape, dtype=DType.F32, value=0.0)
        caches.append([(empty, empty)] * sequences)
    x, _ = read(model, tokens, [start] * sequences, caches, length)
    return f.cross_entropy(model.logits(x), targets)


def loss_graph(model: Decoder, tokens: int) -> Graph:
    """The graph (tokens, targets) -> loss of one sequence, each i32 (`tokens`,)."""
    ids = TensorType((tokens,), DType.I32)
    return trace(
        "loss",
        lambda *inputs: (next_token_loss(model, *inputs),),
        {"tokens": ids, "targets": ids},
        parameters=model.parameters(),
    )
