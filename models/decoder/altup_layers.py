"""AltUp: several streams of hidden states; a layer reads one of them (Baykal et al., 2023).

In shape comments `N` is sequences x tokens, `E` the hidden width, `S` streams.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.decoder.gemma3n_config import Gemma3nConfig
    from hearthd.models.dsl.graph import Tensor

_MIN_MEAN_SQUARE = 1e-5


class OutputScale(nn.Module):
    """Numbers (E,) that multiply hidden states."""

    def __init__(self, hidden: int) -> None:
        self.weight = nn.parameter(hidden, dtype=DType.F32)

    def __call__(self, h: Tensor) -> Tensor:
        """(N, E) -> (N, E)."""
        return h * f.along_last(self.weight, h)


class AltUp(nn.Module):
    """Predicts each stream from all, and corrects it by the result of a layer for the first one.

    The matrices are small and stay f32.
    """

    def __init__(self, config: Gemma3nConfig) -> None:
        self.streams = streams = config.streams
        self.router_norm = nn.RMSNorm(config.hidden, config.norm_eps)
        self.modality_router = nn.Linear(config.hidden, streams)
        self.prediction_coefs = nn.Linear(streams, streams * streams)
        self.correction_coefs = nn.Linear(streams, streams)
        self.correct_output_scale = OutputScale(config.hidden)

    def predicted(self, streams: Sequence[Tensor]) -> list[Tensor]:
        """Streams, each (N, E): each with the sum of all, times factors of the first one's."""
        factors = self._factors(streams[0], self.prediction_coefs)
        result = []
        for of_stream, stream in zip(f.chunk(factors, self.streams, axis=1), streams, strict=True):
            total = stream
            for factor, x in zip(f.chunk(of_stream, self.streams, axis=1), streams, strict=True):
                total = total + x * f.along_axes(f.flatten(factor), x, (1,))
            result.append(ops.barrier(total))
        return result

    def corrected(self, streams: Sequence[Tensor], activated: Tensor) -> list[Tensor]:
        """Predicted streams, each with the error (N, E) of the first one times a factor."""
        factors, error = self._factors(activated, self.correction_coefs), activated - streams[0]
        return [
            stream + error * f.along_axes(f.flatten(factor + 1.0), error, (1,))
            for factor, stream in zip(f.chunk(factors, self.streams, axis=1), streams, strict=True)
        ]

    def _factors(self, x: Tensor, coefficients: nn.Linear) -> Tensor:
        """(N, E) -> the products of S numbers of -1 to 1 with a matrix."""
        normed = self.router_norm(x) * (1.0 / x.shape[1])
        router = self.modality_router.weight
        modalities = ops.barrier(ops.tanh(f.matmul_transposed(normed, router, dtype=x.dtype)))
        return ops.barrier(f.matmul_transposed(modalities, coefficients.weight, dtype=x.dtype))


def as_large(x: Tensor, like: Tensor) -> Tensor:
    """Rows (N, E), scaled to the root mean squares of the rows of another tensor."""
    x, like = ops.barrier(x), ops.barrier(like)
    square = f.mean(x * x, 1)
    square = ops.maximum(square, ops.full_like(square, _MIN_MEAN_SQUARE))
    factors = ops.sqrt(f.mean(like * like, 1)) / ops.sqrt(square)
    return x * f.along_axes(factors, x, (1,))
