"""The KL divergence of a precision from F32, computed by NumPy before anything is baked.

Both precisions read the beginnings of the texts of `hearth compare`. Their weights are written to
a temporary file and mapped, to save memory. Nothing runs on the target, which may be another
machine; the golden values check that the compiled program computes what NumPy computes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from threadpoolctl import threadpool_limits

from hearthd.baker.compare.measurement.passages import shipped_texts
from hearthd.baker.compare.measurement.position_metrics import kl_divergence
from hearthd.baker.compare.sides.prediction import FullPrediction
from hearthd.baker.parameters.native import storages
from hearthd.baker.parameters.parameter_writer import locate, write_parameters
from hearthd.baker.reference.numpy_runtime import NumpyRuntime, stored_parameters
from hearthd.baker.temporary_folder import temporary_folder
from hearthd.models.dsl.functions import DECODE_ROWS
from hearthd.models.program import ProgramOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from hearthd.baker.parameters.parameter_writer import StoredRows
    from hearthd.baker.tokenizer.tokenizer_files import SourceTokenizer
    from hearthd.baker.weights.source import WeightSource
    from hearthd.bundle import Activations
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture

# Tokens of each text: whole calls of DECODE_ROWS, since a call unpacks all weights.
TOKENS = 4 * DECODE_ROWS
_EXACT = "f32"
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """KL(F32 || precision) in nats: the mean over `positions` positions.

    `activations` of the precision, as in ProgramOptions.
    """

    mean: float
    positions: int
    activations: Activations = "int16"


def beginnings(source: SourceTokenizer) -> list[tuple[int, ...]]:
    """The first TOKENS tokens of each of `hearth compare`'s texts; raises a WeightsError."""
    start = () if source.bos is None else (source.bos,)
    return [
        (*start, *source.tokenizer.encode(text, add_special_tokens=False).ids)[:TOKENS]
        for text in shipped_texts().values()
    ]


@dataclass(frozen=True)
class Meter:
    """Measures precisions of one model on some texts. The predictions of F32 are computed once."""

    source: WeightSource
    architecture: Architecture[Any]
    config: ModelConfig
    texts: Sequence[tuple[int, ...]]

    def measure(
        self,
        precision: str,
        activations: Activations = "int16",
        assigned: Mapping[str, str] = _NONE,
        rounded: Mapping[str, StoredRows] = _NONE,
    ) -> Divergence:
        """The divergence of a precision, with activations as in ProgramOptions.

        `assigned` are storages by parameter, in place of the precision's; `rounded` has the
        arrays of parameters that are already rounded. Raises a WeightsError, NotFiniteError or
        NotFinitePrediction.
        """
        if precision == _EXACT:
            return Divergence(mean=0.0, positions=0)
        divergences = [
            kl_divergence(exact.probabilities, exact.logprobs, FullPrediction(logits).logprobs)
            for exact, logits in zip(
                self._exact, self._logits(precision, activations, assigned, rounded), strict=True
            )
        ]
        return Divergence(
            mean=float(f"{np.mean(divergences):.2g}"),
            positions=len(divergences),
            activations=activations,
        )

    @cached_property
    def _exact(self) -> list[FullPrediction]:
        return [FullPrediction(logits) for logits in self._logits(_EXACT, "int16", _NONE, _NONE)]

    def _logits(
        self,
        precision: str,
        activations: Activations,
        assigned: Mapping[str, str],
        rounded: Mapping[str, StoredRows],
    ) -> list[NDArray[np.float32]]:
        """The logits after each token of the texts, each f32 (V,)."""
        options = ProgramOptions(
            context=TOKENS,
            precision=precision,
            prefill_tokens=(DECODE_ROWS,),
            decode_batches=(1,),
            verify_tokens=(DECODE_ROWS,),
            storages=assigned or storages(precision, self.source, self.architecture, self.config),
            activations=activations,
        )
        program = self.architecture.program(self.config, options)
        located = locate(self.source, self.architecture, self.config, program)
        # One thread, as the last bits of a sum depend on it and bundles record the result.
        with temporary_folder("hearth-") as folder, threadpool_limits(1):
            archive = folder / "params.irpa"
            write_parameters(self.source, located, archive, lambda _: None, rounded)
            runtime = NumpyRuntime(
                program,
                stored_parameters(program.parameters, archive),
                context=TOKENS,
                slots=len(self.texts),
            )
            return [
                row
                for slot, tokens in enumerate(self.texts)
                for start in range(0, len(tokens), DECODE_ROWS)
                for row in runtime.verify(slot, tokens[start : start + DECODE_ROWS], start)
            ]
