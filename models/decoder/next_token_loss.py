"""The loss that a language model is trained with: the cross-entropy of each next token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.decoder.whole_sequences import WholeSequences
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from hearthd.models.decoder.entry_points import Decoder
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.dsl.graph import Graph, Tensor


@dataclass(frozen=True, kw_only=True)
class AnswerTokens:
    """The next tokens that are learned.

    rows     i32 (A,): the place in the batch of the token that each one follows
    targets  i32 (A,)
    weights  f32 (A,): 0 where a row is padding
    """

    rows: Tensor
    targets: Tensor
    weights: Tensor


def next_token_loss(
    model: Decoder, tokens: Tensor, targets: Tensor, *, sequences: int = 1
) -> Tensor:
    """The mean cross-entropy of the targets, f32 ().

    tokens     i32 (N,): sequences of equal length, one after the other, each from position 0
    targets    i32 (N,): the token that follows each
    """
    return f.cross_entropy(model.logits(whole_sequence_states(model, tokens, sequences)), targets)


def answer_loss(
    model: Decoder, tokens: Tensor, answers: AnswerTokens, *, sequences: int = 1
) -> Tensor:
    """The sum of the cross-entropies of some next tokens, each times its weight, f32 ().

    tokens  as in `next_token_loss`

    Logits are computed only for the rows of the answers.
    """
    x = whole_sequence_states(model, tokens, sequences)
    # A product with rows of an identity: the gradient of a gather is a scatter, which is slow.
    places = ops.iota(shape=(answers.rows.shape[0], x.shape[0]), axis=1, dtype=DType.I32)
    rows = ops.broadcast(answers.rows, shape=places.shape, axes=(0,))
    chosen = ops.convert(ops.compare(places, rows, direction="EQ"), dtype=x.dtype)
    losses = f.cross_entropy_per_row(model.logits(chosen @ x), answers.targets)
    return ops.reduce_sum(losses * answers.weights, axes=(0,))


def whole_sequence_states(model: Decoder, tokens: Tensor, sequences: int) -> Tensor:
    """Normalized hidden states (N, E) of sequences of equal length, each from position 0."""
    length = tokens.shape[0] // sequences
    layers: list[LayerCache] = [
        WholeSequences(sequences=sequences, length=length, window=model.window(layer))
        for layer in range(model.config.cached_layers)
    ]
    return model(tokens, layers[0].positions(tokens.shape[0]), layers)


def loss_graph(model: Decoder, tokens: int) -> Graph:
    """The graph (tokens, targets) -> loss of one sequence, each i32 (`tokens`,)."""
    ids = TensorType((tokens,), DType.I32)
    return trace(
        "loss",
        lambda *inputs: (next_token_loss(model, *inputs),),
        {"tokens": ids, "targets": ids},
        parameters=model.parameters(),
    )


def answer_loss_graph(
    model: Decoder, *, name: str, sequences: int, length: int, rows: int
) -> Graph:
    """The graph (tokens, rows, targets, weights) -> loss of `answer_loss`.

    tokens i32 (`sequences` * `length`,); the others have `rows` elements
    """

    def loss(tokens: Tensor, rows: Tensor, targets: Tensor, weights: Tensor) -> tuple[Tensor]:
        answers = AnswerTokens(rows=rows, targets=targets, weights=weights)
        return (answer_loss(model, tokens, answers, sequences=sequences),)

    inputs = {
        "tokens": TensorType((sequences * length,), DType.I32),
        "rows": TensorType((rows,), DType.I32),
        "targets": TensorType((rows,), DType.I32),
        "weights": TensorType((rows,), DType.F32),
    }
    return trace(name, loss, inputs, parameters=model.parameters())
