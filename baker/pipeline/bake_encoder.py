"""`hearth bake bert` and other encoders: models that embed texts or score pairs of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from hearthd.baker.atomic_folder import check_destination
from hearthd.baker.compiler.targets import find_targets
from hearthd.baker.parameters.parameter_writer import locate
from hearthd.baker.pipeline.bake_arrays import ArraysToBake, bake_arrays
from hearthd.baker.pipeline.encoder_recipe import encoder_recipes
from hearthd.baker.pipeline.memory_plan import footprint
from hearthd.baker.pipeline.recipe import MIN_CONTEXT, RecipeError
from hearthd.baker.pipeline.shared_stages import RecordedRequest
from hearthd.baker.pipeline.weights_config import check_architecture, read_config
from hearthd.baker.tokenizer.tokenizer_files import text_tokenizer_json
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.bundle import TOKENIZER, EncoderManifest
from hearthd.models.catalog import ENCODERS
from hearthd.models.encoder.encoder_entry_points import EncoderOptions
from hearthd.models.precision import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.baker.pipeline.encoder_recipe import EncoderDefaults
    from hearthd.baker.progress import Progress
    from hearthd.models.dsl.graph import Graph
    from hearthd.models.program import ArraysProgram
    from hearthd.runtime.array_bytes import Arrays

# Those that store every matrix in the same way.
ENCODER_PRECISIONS = tuple(
    name for name, one in PRECISIONS.items() if not one.native and not one.calibrated
)
_SEED = 0


@dataclass(frozen=True, kw_only=True)
class EncoderBakeRequest:
    """An encoder to bake. None means: as the recipe in configs/encoders says.

    `context` is the longest text in tokens.
    """

    model: str
    weights: Path
    precision: str | None
    context: int | None
    target: str
    out: Path | None


@dataclass(frozen=True, kw_only=True)
class EncoderModel(ArraysToBake):
    """An encoder to bake: its golden examples are texts."""

    vocab_size: int
    precision: str

    @override
    def example_inputs(self, graph: Graph) -> Arrays:
        """Texts of random tokens, the first of which fills its function."""
        rng = np.random.default_rng(_SEED)
        batch, length = graph.inputs[0].shape
        counts = rng.integers(1, length + 1, batch)
        counts[0] = length
        return {
            "tokens": rng.integers(0, self.vocab_size, (batch, length)).astype(np.int32),
            "types": np.zeros((batch, length), np.int32),
            "counts": counts.astype(np.int32),
        }

    @override
    def manifest(self, fields: Mapping[str, Any]) -> EncoderManifest:
        """The manifest with the fields that every program has."""
        return EncoderManifest(
            **fields,
            precision=self.precision,
            tolerance=PRECISIONS[self.precision].tolerance,
            vocab_size=self.vocab_size,
            footprint=footprint(self.program.graphs, self.program.parameters),
        )


def bake_encoder(request: EncoderBakeRequest, progress: Progress) -> Path:
    """Bake an encoder; returns the bundle's folder.

    Raises ConfigError, RecipeError, TokenizerError and what bake_arrays raises.
    """
    defaults = encoder_recipes()[request.model]
    precision = request.precision or defaults.precision
    if precision not in ENCODER_PRECISIONS:
        raise RecipeError(
            f"--precision: got {precision!r}, expected {', '.join(ENCODER_PRECISIONS)}"
        )
    check_destination(request.out)
    with progress.stage("open the weights"):
        source = open_weights(request.weights)
        architecture = ENCODERS[defaults.architecture]
        check_architecture(request.model, source)
        config = read_config(source, architecture)
        lengths = _lengths(defaults, request.context, config.max_context)
        targets = find_targets(request.target)
        tokenizer = text_tokenizer_json(source)
    with progress.stage("trace the model"):
        program = architecture.program(config, EncoderOptions(precision=precision, lengths=lengths))
        model = EncoderModel(
            recorded=RecordedRequest(
                model=request.model,
                options={
                    "precision": precision,
                    "context": lengths[-1],
                    "target": request.target,
                },
                package=None,
            ),
            architecture=architecture.name,
            config=architecture.to_manifest(config),
            program=program,
            source=source,
            located=locate(source, architecture, config, program),
            texts={TOKENIZER: tokenizer},
            vocab_size=config.vocab_size,
            precision=precision,
        )
    out = request.out or Path(f"{request.model}-{precision}")
    bake_arrays(model, targets, out, progress)
    return out


def traced_encoder(manifest: EncoderManifest) -> ArraysProgram:
    """The program of a bundle, traced again; raises ConfigError."""
    architecture = ENCODERS[manifest.architecture]
    lengths = tuple(function.inputs[0].shape[1] for function in manifest.functions)
    options = EncoderOptions(precision=manifest.precision, lengths=lengths)
    return architecture.program(architecture.from_manifest(manifest.config), options)


def _lengths(defaults: EncoderDefaults, context: int | None, longest: int) -> tuple[int, ...]:
    """The lengths of a recipe up to the context, which is the last one."""
    last = min(defaults.lengths[-1], longest) if context is None else context
    if not MIN_CONTEXT <= last <= longest:
        raise RecipeError(
            f"--context {last} is out of range: expected {MIN_CONTEXT} to {longest}, the longest "
            "text that the model was trained for"
        )
    return (*(length for length in defaults.lengths if length < last), last)
