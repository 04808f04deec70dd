"""Computing golden values for a bundle whose weights are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from hearthd.baker.reference.golden_values import STEPS, golden_rows, golden_values
from hearthd.baker.reference.numpy_runtime import NumpyRuntime, stored_parameters
from hearthd.models.bundle import PARAMETERS
from hearthd.models.program import ProgramOptions

if TYPE_CHECKING:
    from hearthd.baker.pipeline.shared_stages import Workspace
    from hearthd.models.bundle import Activations, Golden, GoldenRow
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture


def golden_stage(
    workspace: Workspace,
    architecture: Architecture[Any],
    config: ModelConfig,
    ids: list[tuple[int, ...]],
    activations: Activations,
    **options: Any,
) -> tuple[tuple[Golden, ...], tuple[GoldenRow, ...]]:
    """The golden values of prompts, and the golden rows of their last tokens.

    `activations` and `options` are those of the program, which has a slot for each prompt.
    """
    context = max(len(tokens) for tokens in ids) + STEPS
    program = architecture.program(
        config,
        ProgramOptions(
            context=context, decode_batches=(1, len(ids)), activations=activations, **options
        ),
    )
    parameters = stored_parameters(program.parameters, workspace.folder / PARAMETERS)
    runtime = NumpyRuntime(program, parameters, context=context, slots=len(ids))
    # One thread: the last bits of a sum depend on the number of threads.
    with workspace.progress.stage("compute golden values with NumPy"), threadpool_limits(1):
        golden = golden_values(runtime, ids)
    return golden, golden_rows(runtime, program.caches, golden, activations)
