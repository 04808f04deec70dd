"""Computing golden values for a bundle whose weights are written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from threadpoolctl import threadpool_limits

from hearthd.baker.reference.golden_values import STEPS, golden_rows, golden_values
from hearthd.baker.reference.numpy_runtime import NumpyRuntime, stored_parameters
from hearthd.bundle import PARAMETERS

if TYPE_CHECKING:
    from hearthd.baker.pipeline.opened_model import OpenedModel
    from hearthd.baker.pipeline.shared_stages import Workspace
    from hearthd.bundle import Golden, GoldenRow
    from hearthd.models.program import ProgramOptions


def golden_stage(
    workspace: Workspace, model: OpenedModel, options: ProgramOptions, ids: list[tuple[int, ...]]
) -> tuple[tuple[Golden, ...], tuple[GoldenRow, ...]]:
    """The golden values of prompts, and the golden rows of their last tokens.

    `options` are those of the bundle's program; the one computed here has a slot for each prompt.
    """
    context = max(len(tokens) for tokens in ids) + STEPS
    program = model.program(
        replace(
            options,
            context=context,
            decode_batches=(1, len(ids)),
            verify_tokens=(),
            reads_rows=False,
            adapters=0,
        )
    )
    parameters = stored_parameters(program.parameters, workspace.folder / PARAMETERS)
    runtime = NumpyRuntime(program, parameters, context=context, slots=len(ids))
    # One thread: the last bits of a sum depend on the number of threads.
    with workspace.progress.stage("compute golden values with NumPy"), threadpool_limits(1):
        golden = golden_values(runtime, ids)
    return golden, golden_rows(runtime, program.caches, golden, options.activations)
