"""How much the products of each matrix count at each token of the calibration text.

Where the products y of a matrix change by e, the predicted distributions change by a KL divergence
of about e^T F e / 2. F is the Fisher information: the mean of g g^T over the gradients g, by y, of
the log likelihood of tokens that are drawn from these distributions. With the trace of F in its
place, the Hessian of a matrix is the mean of |g|^2 x x^T over tokens with inputs x. GuidedQuant
(Kim et al., 2025) weights tokens so for groups of outputs, by the text's own next tokens;
SqueezeLLM (Kim et al., 2024) weights single weights by squares of gradients.

No token is drawn. The gradient by the logits of a drawn token has the mean 0 and the covariance
diag(p) - p p^T; sqrt(p) r - p (sqrt(p) . r) has the same for random signs r, and its squares vary
less (Hutchinson, 1990). Such vectors of many positions share one pass backward, as the products of
two of them are 0 on average.

The weight of a token is |g|, not its square: a few tokens have most of the sum of squares, and the
matrices would be fitted to those. With |g|, the predictions for other texts changed less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from hearthd.baker.calibration.reading import FileWeights
from hearthd.baker.parameters.quantization import NotFiniteError, require_finite
from hearthd.models.decoder.next_token_loss import whole_sequence_states
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import ops
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.gradient import pull_back, vector_jacobian_product
from hearthd.models.dsl.graph import Apply, Tensor, deduplicated, in_order, op_of
from hearthd.models.dsl.recomputation import with_recomputation
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture
    from hearthd.models.decoder.entry_points import Decoder

    Array = NDArray[Any]
    Floats = NDArray[np.float32]

# Every INTERVAL-th sequence goes through the model; every STRIDE-th position has a gradient.
INTERVAL = 2
STRIDE = 4
# Bytes of the logits that are computed at once.
_LOGITS_BYTES = 64 << 20
_SEED = 0


def token_weights(
    source: WeightSource,
    architecture: Architecture[Any],
    config: ModelConfig,
    names: Collection[str],
    tokens: NDArray[np.int32],
    folder: Path,
    advance: Callable[[int], None],
) -> dict[str, Floats]:
    """The weights f32 (S * T,) of the tokens i32 (S, T) for each of the matrices `names`.

    `folder` is a temporary one; `advance` is told how many sequences are done. Each second sequence
    goes through the model, layer by layer, and back; the others have the root mean square of these
    at each position. Raises a WeightsError, and NotFiniteError for one of the matrices.
    """
    gradients = Gradients(source, architecture, config, names, tokens.shape[1], folder)
    bits = np.random.SFC64(_SEED)
    squares = []
    with threadpool_limits(1):  # the last bits of a sum depend on the number of threads
        for i, sequence in enumerate(tokens[::INTERVAL]):
            squares.append(gradients.squares(sequence, i % STRIDE, bits))
            advance(min(INTERVAL, len(tokens) - i * INTERVAL))
    return {
        name: _for_all(np.stack(of_matrix), len(tokens))
        for name, of_matrix in zip(gradients.names, zip(*squares, strict=True), strict=True)
    }


def _for_all(squares: Floats, count: int) -> Floats:
    """The weights (S * T,) of `count` sequences, for |g|^2 (S / INTERVAL, T) of some."""
    every: Floats = np.tile(squares.mean(axis=0), (count, 1))
    every[::INTERVAL] = squares
    np.sqrt(every, out=every)
    return every.reshape(-1)


class Gradients:
    """The gradients of a model that reads a sequence.

    names  of the matrices, in the order of `squares`
    graph  tokens i32 (T,) -> the gradient by the states (T, E), then `squares`
    """

    def __init__(
        self,
        source: WeightSource,
        architecture: Architecture[Any],
        config: ModelConfig,
        names: Collection[str],
        length: int,
        folder: Path,
    ) -> None:
        self._model: Decoder = architecture.model(config)
        self._parameters = self._model.parameters()
        self._weights = FileWeights(source, architecture, config, self._parameters, folder)
        by_id = {id(self._parameters[name]): name for name in names}
        self.names: list[str] = []

        def run(tokens: Tensor) -> tuple[Tensor, ...]:
            states = whole_sequence_states(self._model, tokens, 1)
            nodes = [node for node in in_order((states,)) if isinstance(node.origin, Apply)]
            products = [
                node
                for node in reversed(nodes)
                if op_of(node) is f.times_weight.op and id(node.inputs[1]) in by_id
            ]
            self.names += (by_id[id(node.inputs[1])] for node in products)
            arriving = ops.barrier(states)
            found = vector_jacobian_product(nodes, (states,), (arriving,), products)
            squares = [ops.reduce_sum(x * x, axes=(x.type.rank - 1,)) for x in found]
            return arriving, *with_recomputation(states, squares)

        inputs = {"tokens": TensorType((length,), DType.I32)}
        graph = trace("token weights", run, inputs, parameters=self._parameters)
        self.graph = deduplicated(graph)

    def squares(
        self, tokens: NDArray[np.int32], first: int, bits: np.random.BitGenerator
    ) -> list[Floats]:
        """|g|^2 of each matrix at each token of a sequence (T,): f32 (T,).

        The gradient is of the positions `first`, `first` + STRIDE, ...
        """
        by_id = {id(self._parameters[name]): name for name in self.names}

        def replace(node: Tensor, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
            if node is self.graph.outputs[0]:
                return (self._by_states(arrays[0], first, bits),)
            if op_of(node) is f.times_weight.op and id(node.inputs[1]) in by_id:
                _require_finite(by_id[id(node.inputs[1])], arrays[1])
            return arrays

        return evaluate(self.graph, [tokens], self._weights, replace=replace)[1:]

    def _by_states(self, states: Floats, first: int, bits: np.random.BitGenerator) -> Floats:
        """The gradient by normalized hidden states (T, E)."""
        result = np.zeros_like(states)
        rows = max(1, _LOGITS_BYTES // (4 * self._model.config.vocab_size))
        chosen = range(first, len(states), STRIDE)
        for start in range(0, len(chosen), rows):
            block = chosen[start : start + rows]
            result[block] = self._through_head(states[block], bits)
        return result

    def _through_head(self, states: Floats, bits: np.random.BitGenerator) -> Floats:
        """The same for rows (R, E) that all have a gradient."""
        arriving: list[Tensor] = []

        def run(x: Tensor) -> tuple[Tensor, ...]:
            logits = self._model.logits(x)
            arriving.append(ops.barrier(logits))
            return tuple(x for x in pull_back(logits, arriving[0], (x,)) if x is not None)

        def replace(node: Tensor, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
            return (random_gradient(arrays[0], bits),) if node is arriving[0] else arrays

        inputs = {"states": TensorType(states.shape, DType.F32)}
        graph = trace("head", run, inputs, parameters=self._parameters)
        return evaluate(graph, [states], self._weights, replace=replace)[0]


def _require_finite(name: str, weight: Floats) -> None:
    try:
        require_finite(weight, weight)
    except NotFiniteError as error:
        raise NotFiniteError(f"parameter {name}: {error}") from None


def random_gradient(logits: Floats, bits: np.random.BitGenerator) -> Floats:
    """A random vector for each row of logits (R, V), of covariance diag(p) - p p^T: (R, V)."""
    p = logits - logits.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    raw = np.asarray(bits.random_raw(-(-p.size // 64)), "<u8").view(np.uint8)
    vector = np.unpackbits(raw, count=p.size).reshape(p.shape).astype(np.float32)
    vector *= 2
    vector -= 1
    vector *= np.sqrt(p)
    p *= vector.sum(axis=1, keepdims=True)
    vector -= p
    return vector
