"""Every model of configs/ with two layers of its smallest published size, as a bake compiles it.

    python -m tests.models.families.published_sizes
    python -m tests.models.families.published_sizes --model gemma4 --precision bf16 --precision f32

Compiles the program of each recipe in each precision, by default with every entry point, with the
prefills, batches, context and lengths of texts in configs/. Weights are not needed.
Prints a line for each program. Exit code 1: one of them does not compile.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearthd.baker.compiler.compilation import Compilation, CompileError
from hearthd.baker.compiler.targets import find_target
from hearthd.baker.pipeline.encoder_recipe import encoder_recipes
from hearthd.baker.pipeline.recipe import VERIFY_TOKENS, decode_batches, recipes
from hearthd.bundle import MIN_AUTO_CONTEXT
from hearthd.models.catalog import ENCODERS
from hearthd.models.config import ImageGrid
from hearthd.models.dsl.mlir.stablehlo import chains, kernels, module_text
from hearthd.models.encoder.encoder_entry_points import EncoderOptions
from hearthd.models.precision import PRECISIONS
from hearthd.models.program import ProgramOptions
from tests.models.families.size_table import SIZES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearthd.models.config import ModelConfig
    from hearthd.models.dsl.graph import Graph

# The fields of a tower with two layers.
SMALL_TOWER: Mapping[str, Any] = {
    "image_size": 128, "patch_size": 16, "tower_layers": 2, "tower_hidden": 64, "tower_ffn": 96,
    "tower_heads": 1, "tower_norm_eps": 1e-6,
}  # fmt: skip
SMALL_INTERN: Mapping[str, Any] = {
    **SMALL_TOWER, "tower_bias": True, "joined_patches": 2,
}  # fmt: skip
# The same for images of any size.
SMALL_GRID_TOWER: Mapping[str, Any] = {
    "patch_size": 16, "merged_patches": 2, "table_side": 8, "tower_layers": 2, "tower_hidden": 64,
    "tower_ffn": 96, "tower_heads": 1,
}  # fmt: skip
# The same, with Pixtral's.
SMALL_PIXTRAL: Mapping[str, Any] = {
    **{key: value for key, value in SMALL_GRID_TOWER.items() if key != "table_side"},
    "longest_edge": 128, "tower_rope_base": 1e4, "projector_bias": False,
}  # fmt: skip
# The same, with Qwen2.5-VL's.
SMALL_WINDOWS: Mapping[str, Any] = {
    **{key: value for key, value in SMALL_GRID_TOWER.items() if key != "table_side"},
    "window_squares": 2, "attends_to_all": (False, True),
}  # fmt: skip
# The same for sound.
SMALL_SOUND_TOWER: Mapping[str, Any] = {
    "sound_mels": 16, "sound_channels": (16, 8), "sound_layers": 2, "sound_hidden": 64,
    "sound_heads": 2, "sound_context": 4, "sound_kernel": 3, "sound_cap": 50.0,
    "sound_residual": 0.5, "sound_norm_eps": 1e-6, "sound_clips": True, "sound_width": 96,
}  # fmt: skip
# And Whisper's.
SMALL_WHISPER: Mapping[str, Any] = {
    "sound_mels": 16, "sound_states": 64, "sound_layers": 2, "sound_hidden": 64, "sound_ffn": 96,
    "sound_heads": 2, "sound_norm_eps": 1e-5,
}  # fmt: skip
# A precision of each way to store and multiply matrices.
COMPILED_PRECISIONS = ("f32", "bf16", "native")


def graphs_of(model: str, precision: str) -> Sequence[Graph]:
    """The entry points that a bake with the values of configs/ compiles."""
    if model in encoder_recipes():
        recipe = encoder_recipes()[model]
        encoder = ENCODERS[recipe.architecture]
        config: ModelConfig = encoder.config(**SIZES[model].arguments())
        lengths = tuple(length for length in recipe.lengths if length <= config.max_context)
        return encoder.program(config, EncoderOptions(precision=precision, lengths=lengths)).graphs
    decoder, values = recipes()[model][0].architecture, recipes()[model][0].defaults
    config = decoder.config(**SIZES[model].arguments())
    sound = decoder.sound_input(config, {})
    options = ProgramOptions(
        context=MIN_AUTO_CONTEXT,
        precision=precision,
        prefill_tokens=values.prefill_tokens,
        decode_batches=decode_batches(values.slots),
        verify_tokens=VERIFY_TOKENS,
        reads_rows=config.reads_rows,
        image_rows=(64, 256) if isinstance(config.image, ImageGrid) else (),
        sound_rows=() if sound is None else sound.sizes[-1:],
    )
    return decoder.program(config.for_context(MIN_AUTO_CONTEXT), options).graphs


def is_function_of(graph: Graph, entry_point: str) -> bool:
    """Whether a graph is an entry point, or a slice of one."""
    return graph.name == entry_point or graph.name.startswith(f"{entry_point}_")


def compile_program(graphs: Sequence[Graph], folder: Path) -> None:
    """Compile graphs as one module for this machine; raises CompileError."""
    source = folder / "model.mlir"
    source.write_text(module_text("hearth", graphs, "model"), encoding="utf-8")
    with Compilation(
        source,
        folder / "model.vmfb",
        find_target("host"),
        kernels=kernels(graphs),
        chains=chains(graphs),
    ) as compilation:
        compilation.wait()


def main() -> int:
    """Compile the programs one after the other; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.models.families.published_sizes",
        description=__doc__.partition("\n")[0] if __doc__ else None,
    )
    parser.add_argument("--model", action="append", choices=SIZES, help="by default all of them")
    parser.add_argument("--precision", action="append", choices=PRECISIONS)
    parser.add_argument("--entry-point", action="append", help="such as prefill_16")
    arguments = parser.parse_args()
    rejected = 0
    for precision in arguments.precision or COMPILED_PRECISIONS:
        for model in arguments.model or SIZES:
            before, reason = os.times(), "compiled"
            graphs = [
                graph
                for graph in graphs_of(model, precision)
                if any(
                    is_function_of(graph, name) for name in arguments.entry_point or (graph.name,)
                )
            ]
            with tempfile.TemporaryDirectory() as folder:
                try:
                    compile_program(graphs, Path(folder))
                except CompileError as error:
                    rejected, reason = rejected + 1, f"REJECTED: {str(error).splitlines()[0]}"
            seconds = sum(os.times()[:4]) - sum(before[:4])
            sys.stdout.write(f"{model:15} {precision:9} {seconds:6.1f} s of CPU  {reason}\n")
            sys.stdout.flush()
    return min(1, rejected)


if __name__ == "__main__":
    sys.exit(main())
