"""`hearth bake bert` and other encoders: models that embed texts or score pairs of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from typing_extensions import override

from hearthd.baker.pipeline.encoder_recipe import encoder_recipes
from hearthd.baker.pipeline.kinds.bake_arrays import ArraysToBake, ModelPlan
from hearthd.baker.pipeline.memory_plan import footprint
from hearthd.baker.pipeline.recipe import RecipeError
from hearthd.baker.pipeline.shared_stages import BakeRecord, destination, storing_in
from hearthd.baker.tokenizer.tokenizer_files import text_tokenizer_json
from hearthd.bundle import MIN_CONTEXT, EncoderManifest, encoder_memory
from hearthd.models.catalog import ENCODERS
from hearthd.models.encoder.encoder_entry_points import EncoderOptions
from hearthd.models.precision import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.baker.pipeline.bake_options import BakeOptions
    from hearthd.baker.pipeline.encoder_recipe import EncoderDefaults
    from hearthd.baker.pipeline.weights_config import Family
    from hearthd.baker.weights.source import WeightSource
    from hearthd.bundle import Memory
    from hearthd.models.dsl.graph import Graph
    from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
    from hearthd.models.program import ArraysProgram
    from hearthd.runtime.array_bytes import Arrays

# Those that store every matrix in the same way.
ENCODER_PRECISIONS = tuple(
    name
    for name, precision in PRECISIONS.items()
    if not precision.native and not precision.calibrated
)
_SEED = 0


@dataclass(frozen=True, kw_only=True)
class EncoderPlan(ModelPlan):
    """One bake of an encoder; `lengths` are the lengths of its functions, in tokens, rising."""

    architecture: EncoderArchitecture[Any]
    lengths: tuple[int, ...]

    @override
    def program(self) -> ArraysProgram:
        options = EncoderOptions(precision=self.precision, lengths=self.lengths)
        with storing_in(self.precision):
            return self.architecture.program(self.config, options)

    @override
    def memory(self) -> Memory:
        program = self.program()
        size = footprint(program.graphs, program.parameters)
        return encoder_memory(size, self.config.vocab_size, self.lengths[-1])


@dataclass(frozen=True, kw_only=True)
class EncoderToBake(ArraysToBake):
    """An encoder to bake: its golden examples are texts."""

    plan: EncoderPlan

    @override
    def example_inputs(self, graph: Graph) -> Arrays:
        """Texts of random tokens; the first fills its function."""
        rng = np.random.default_rng(_SEED)
        batch, length = graph.inputs[0].shape
        counts = rng.integers(1, length + 1, batch)
        counts[0] = length
        return {
            "tokens": rng.integers(0, self.plan.config.vocab_size, (batch, length)).astype(
                np.int32
            ),
            "types": np.zeros((batch, length), np.int32),
            "counts": counts.astype(np.int32),
        }

    @override
    def manifest(self, fields: Mapping[str, Any]) -> EncoderManifest:
        """The manifest with the fields that every program has."""
        return EncoderManifest(
            **fields,
            precision=self.plan.precision,
            tolerance=PRECISIONS[self.plan.precision].tolerance,
            vocab_size=self.plan.config.vocab_size,
            footprint=footprint(self.program.graphs, self.program.parameters),
            pair_prompt=self.plan.architecture.pair_prompt,
        )


def encoder_plan(options: BakeOptions, source: WeightSource, family: Family) -> EncoderPlan:
    """Resolve options; raises RecipeError, TargetError or TokenizerError."""
    options.require_kind("encoder", family.name)
    defaults = encoder_recipes()[family.recipe]
    precision = options.precision or defaults.precision
    if precision not in ENCODER_PRECISIONS:
        raise RecipeError(
            f"--precision: got {precision!r}, expected {', '.join(ENCODER_PRECISIONS)}"
        )
    lengths = _lengths(defaults, options.fixed_context, family.config.max_context)
    resolved = {"precision": precision, "context": lengths[-1]}
    return EncoderPlan(
        record=BakeRecord(
            model=family.name, options=options.record("encoder", **resolved), package=None
        ),
        destination=destination(options, f"{family.name}-{precision}"),
        source=source,
        architecture=ENCODERS[family.architecture],
        config=family.config,
        precision=precision,
        lengths=lengths,
        tokenizer=text_tokenizer_json(source),
    )


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
