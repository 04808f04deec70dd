"""A drafter: one small layer that predicts a model's next tokens from its latest hidden state.

It reads the normalized hidden state after a token and the embedding of the token that follows, and
computes a hidden state that takes the place of the model's after that token. So it can continue
from its own states for several tokens (EAGLE: Li et al., 2024; DeepSeek-V3's multi-token
prediction). It has an MLP and no attention, as Hydra's heads (Ankner et al., 2024), so it keeps
nothing of a sequence. Its head has the rows of the model's head for the most frequent tokens.

In shape comments `N` are rows, `E` the model's hidden width, `D` the tokens that it drafts from one
state of the model, and `T` the tokens of its head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from typing_extensions import override

from hearthd.models.decoder.next_token_loss import whole_sequence_states
from hearthd.models.decoder.tensor_names import DRAFTER_MODULE, EMBEDDING, HEAD
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.graph import Input, Tensor, make_graph
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.bundle import CacheSpec, EntryPoint
    from hearthd.models.decoder.entry_points import Decoder
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.dsl.graph import Graph

# Drafted tokens per state that the loss has terms for. The weight of each term is this fraction of
# the weight of the one before.
DEPTH, _DEPTH_WEIGHT = 3, 0.8
_EPS = 1e-6
_WIDTH = 2  # of the MLP, in hidden widths


class DraftLayer(nn.Module):
    """The trained weights of a drafter.

    With x = [norm(state), norm(embedding)]: proj(x) + down(silu(gate(x)) * up(x)).
    """

    def __init__(self, hidden: int) -> None:
        self.state_norm = nn.RMSNorm(hidden, _EPS)
        self.token_norm = nn.RMSNorm(hidden, _EPS)
        self.proj = nn.Linear(2 * hidden, hidden)
        self.gate_proj = nn.Linear(2 * hidden, _WIDTH * hidden)
        self.up_proj = nn.Linear(2 * hidden, _WIDTH * hidden)
        self.down_proj = nn.Linear(_WIDTH * hidden, hidden)

    def __call__(self, state: Tensor, embedded: Tensor) -> Tensor:
        """Normalized hidden states and embeddings of the next tokens, (N, E) -> states (N, E)."""
        x = ops.concatenate(self.state_norm(state), self.token_norm(embedded), axis=1)
        return self.proj(x) + self.down_proj(f.silu(self.gate_proj(x)) * self.up_proj(x))


def head_matrix(model: Decoder) -> tuple[str, Tensor]:
    """The matrix (V, E) that a model computes logits with, and its name."""
    parameters = model.parameters()
    name = HEAD if HEAD in parameters else EMBEDDING
    return name, parameters[name]


class ProgramDrafter(Protocol):
    """A part of a program that drafts tokens."""

    def named_parameters(self) -> dict[str, Tensor]:
        """Every parameter by its name, which no parameter of the model has."""

    @property
    def caches(self) -> tuple[tuple[CacheSpec, ...], ...]:
        """The drafter's caches, as further layers after the layers of the model."""

    @property
    def layers_read(self) -> tuple[int, ...]:
        """The layers of the model whose caches a draft reads."""
        return ()

    def follow(
        self,
        tokens: Tensor,
        x: Tensor,
        embedded: Tensor,
        positions: Tensor,
        caches: Sequence[LayerCache],
    ) -> None:
        """Write the rows of tokens i32 (N,) that the model reads into the drafter's caches.

        x         their normalized hidden states (N, E)
        embedded  what the first layer read (N, E)
        """

    def graph(self, point: EntryPoint) -> Graph:
        """The graph of a draft: see bundle/manifests/language_manifest.py."""


class StatelessDrafter(ProgramDrafter):
    """A drafter that keeps nothing of a sequence."""

    @property
    @override
    def caches(self) -> tuple[tuple[CacheSpec, ...], ...]:
        return ()

    @override
    def follow(
        self,
        tokens: Tensor,
        x: Tensor,
        embedded: Tensor,
        positions: Tensor,
        caches: Sequence[LayerCache],
    ) -> None:
        """Do nothing."""


class Drafter(nn.Module):
    """A tuned drafter: the layer, and the rows of the model's head that it computes."""

    def __init__(self, hidden: int, tokens: int) -> None:
        self.layer = DraftLayer(hidden)
        self.head = nn.Linear(hidden, tokens)

    def named_parameters(self) -> dict[str, Tensor]:
        """Every parameter by its name, which no parameter of the model has."""
        return {f"{DRAFTER_MODULE}.{name}": x for name, x in self.parameters().items()}

    def layer_parameters(self) -> dict[str, Tensor]:
        """The parameters of the layer, which are trained, by the same names."""
        return {name: x for name, x in self.named_parameters().items() if x is not self.head.weight}


class TunedDrafter(StatelessDrafter):
    """A tuned drafter in a served program."""

    def __init__(self, model: Decoder, tokens: int) -> None:
        self._model, self._drafter = model, Drafter(model.config.hidden, tokens)

    @override
    def named_parameters(self) -> dict[str, Tensor]:
        return self._drafter.named_parameters()

    @override
    def graph(self, point: EntryPoint) -> Graph:
        """(token i32 (1,), state (1, E)) -> (logits (1, T), state (1, E))."""

        def draft(token: Tensor, state: Tensor) -> tuple[Tensor, ...]:
            state = self._drafter.layer(state, self._model.embed(token))
            return self._drafter.head(state), state

        inputs = {
            "token": TensorType((1,), DType.I32),
            "state": TensorType((1, self._model.config.hidden), DType.F32),
        }
        parameters = self._model.parameters() | self.named_parameters()
        return trace(point.name, draft, inputs, parameters=parameters)


class BatchShape(Protocol):
    """The shape of a batch: sequences of equal length, and the learned positions in them."""

    @property
    def name(self) -> str:
        """A name for its functions."""

    @property
    def sequences(self) -> int:
        """The number of sequences."""

    @property
    def length(self) -> int:
        """The tokens of a sequence."""

    @property
    def rows(self) -> int:
        """The learned positions of all sequences together."""


def states_graph(model: Decoder, shape: BatchShape) -> Graph:
    """tokens i32 (N,), sequences, each from position 0 -> normalized hidden states (N, E)."""
    return trace(
        f"states_{shape.name}",
        lambda tokens: (whole_sequence_states(model, tokens, shape.sequences),),
        {"tokens": TensorType((shape.sequences * shape.length,), DType.I32)},
        parameters=model.parameters(),
    )


def frozen_graph(model: Decoder, shape: BatchShape, *, head_tokens: int) -> Graph:
    """The tensors of the frozen model that a loss reads, from the states of sequences.

    states     f32 (N, E), as `states_graph` computes them
    rows       i32 (rows,): places in the sequences
    following  i32 (D * rows,): the token after each place, then the one after that, and so on
    head       i32 (T,): the tokens of the head

    -> the states of the places (rows, E), the embeddings of `following` (D * rows, E), the rows of
    the model's head (T, E), and the logarithms of the model's probabilities of these tokens after
    each of `following`, (D * rows, T).
    """

    def frozen(states: Tensor, rows: Tensor, following: Tensor, head: Tensor) -> tuple[Tensor, ...]:
        _, matrix = head_matrix(model)
        chosen = f.embedding(head, matrix)
        known = _log_softmax(f.matmul_transposed(states, chosen, dtype=states.dtype))
        # The last places of the last sequence have fewer tokens after them; their weight is 0.
        last = ops.full_like(rows, states.shape[0] - 1)
        after = [
            ops.gather(known, ops.minimum(rows + (depth + 1), last), axis=0)
            for depth in range(DEPTH)
        ]
        return (
            ops.gather(states, rows, axis=0),
            model.embed(following),
            chosen,
            ops.concatenate(*after, axis=0),
        )

    places = shape.sequences * shape.length
    inputs = {
        "states": TensorType((places, model.config.hidden), DType.F32),
        "rows": TensorType((shape.rows,), DType.I32),
        "following": TensorType((DEPTH * shape.rows,), DType.I32),
        "head": TensorType((head_tokens,), DType.I32),
    }
    return trace(f"loss_{shape.name}", frozen, inputs, parameters=model.parameters())


def drafter_loss_graph(frozen: Graph, drafter: Drafter) -> Graph:
    """The loss of a drafter, f32 (), on what `frozen_graph` computes.

    The sum over depths d from 0 and rows of 0.8^d * weight * divergence: the KL divergence of the
    drafter's probabilities of the tokens of the head from the model's (Hinton et al., 2015).

    weights  f32 (D * rows,): the weight of the token after each of `following`; 0 for none

    The inputs are the inputs of `frozen`, the weights, and the parameters of the layer.
    """
    state, embedded, head, known = frozen.outputs
    count = state.shape[0]
    weights = Tensor(TensorType((DEPTH * count,), DType.F32), Input("weights"))
    losses = []
    for depth in range(DEPTH):
        start, stop = depth * count, (depth + 1) * count
        state = drafter.layer(state, f.narrow(embedded, 0, start, stop))
        logits = f.matmul_transposed(state, head, dtype=state.dtype)
        rates = _divergences(logits, f.narrow(known, 0, start, stop))
        losses.append(rates * f.narrow(weights, 0, start, stop) * _DEPTH_WEIGHT**depth)
    loss = ops.reduce_sum(ops.concatenate(*losses, axis=0), axes=(0,))
    inputs = (*frozen.inputs, weights, *drafter.layer_parameters().values())
    return make_graph(frozen.name, inputs, (loss,), frozen.parameters, {})


def _divergences(logits: Tensor, known: Tensor) -> Tensor:
    """The KL divergence of softmax(logits) from exp(known) in each row: (N, T) twice -> (N,)."""
    return ops.reduce_sum(ops.exponential(known) * (known - _log_softmax(logits)), axes=(1,))


def _log_softmax(logits: Tensor) -> Tensor:
    """The logarithm of the softmax over the last axis of (N, T), with barriers."""
    # Without barriers, kernels keep several rows on the stack of their thread.
    shifted = ops.barrier(logits - f.along_axes(ops.reduce_max(logits, axes=(1,)), logits, (1,)))
    total = ops.barrier(ops.log(ops.reduce_sum(ops.exponential(shifted), axes=(1,))))
    return ops.barrier(shifted - f.along_axes(total, logits, (1,)))
