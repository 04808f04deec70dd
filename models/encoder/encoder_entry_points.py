"""The functions of an encoder: texts of one length to their vectors.

There is one function for each length, and padding is never seen. So the bits of a vector depend on
its text alone, whatever the other texts of a call are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from hearthd.bundle import ENCODER_INPUTS, ENCODER_OUTPUT
from hearthd.models.dsl import functions as f
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.encoder.texts import Texts
from hearthd.models.optimized import optimized
from hearthd.models.precision import PRECISIONS
from hearthd.models.program import ArraysProgram, StorageOptions

if TYPE_CHECKING:
    from hearthd.models.config import ModelConfig
    from hearthd.models.dsl.graph import Graph, Tensor


class Encoder(Protocol):
    """A transformer that reads whole texts."""

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""

    def parameters(self) -> dict[str, Tensor]:
        """Every weight by its name."""

    def encode(self, texts: Texts) -> Tensor:
        """The vector of each text, f32 (B, W); of a model that scores pairs, W is 1."""


@dataclass(frozen=True, kw_only=True)
class EncoderOptions(StorageOptions):
    """The options that are fixed while baking.

    lengths  lengths of texts in tokens, rising: a text is padded to the smallest that fits
    rows     tokens that a function reads at least: shorter texts are read together
    """

    lengths: tuple[int, ...]
    rows: int = 128

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        """The number of texts and the length of each function."""
        return tuple((max(1, self.rows // length), length) for length in self.lengths)


def program(model: Encoder, options: EncoderOptions) -> ArraysProgram:
    """Trace and optimize every function. Allocates no weights and needs none.

    Raises TypeRuleError if the precision cannot store a matrix of the model.
    """
    result = optimized(
        [_trace(model, batch, length) for batch, length in options.shapes],
        model.parameters(),
        storage=options.storage,
        kernels=PRECISIONS[options.precision].kernels,
    )
    return ArraysProgram(
        graphs=result.graphs,
        outputs={graph.name: (ENCODER_OUTPUT,) for graph in result.graphs},
        weights=result.weights,
    )


def _trace(model: Encoder, batch: int, length: int) -> Graph:
    def encode(tokens: Tensor, types: Tensor, counts: Tensor) -> tuple[Tensor]:
        return (
            model.encode(Texts(tokens=f.flatten(tokens), types=f.flatten(types), counts=counts)),
        )

    shapes = ((batch, length), (batch, length), (batch,))
    types = (TensorType(shape, DType.I32) for shape in shapes)
    inputs = dict(zip(ENCODER_INPUTS, types, strict=True))
    name = f"encode_{batch}x{length}"
    return trace(name, encode, inputs, parameters=model.parameters())
