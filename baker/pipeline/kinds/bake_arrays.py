"""Bake a program of array functions: weights to a bundle, in stages.

The caller provides the traced functions (`models.program.ArraysProgram`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.compiler.targets import runnable
from hearthd.baker.parameters.parameter_writer import Located, locate
from hearthd.baker.pipeline.bill_of_materials import license_of, write_manifest_and_bill
from hearthd.baker.pipeline.shared_stages import (
    compile_in_background,
    provenance,
    records,
    require_passed,
    statistics,
    weights_bytes,
    write_weights,
)
from hearthd.baker.reference.numpy_runtime import stored_parameters
from hearthd.bundle import (
    FORMAT,
    GOLDEN,
    PARAMETERS,
    TOKENIZER,
    ArraysManifest,
    FunctionSpec,
    InputSpec,
    OutputSpec,
)
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.graph import Input
from hearthd.models.dsl.types import DType
from hearthd.models.program import StoredTensor
from hearthd.runtime.array_functions import ArraysRuntime
from hearthd.runtime.checks.golden_arrays import GoldenExample, write_examples
from hearthd.runtime.checks.self_test import self_test_arrays

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hearthd.baker.pipeline.shared_stages import (
        BakeRecord,
        CompiledProgram,
        Destination,
        WeightRecords,
        Workspace,
    )
    from hearthd.baker.progress import Progress
    from hearthd.baker.weights.source import WeightSource
    from hearthd.bundle import Memory, ProgramFile
    from hearthd.models.decoder.architecture import ArchitectureFiles
    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.program import ArraysProgram
    from hearthd.runtime.array_bytes import Array, Arrays
    from hearthd.runtime.array_functions import Functions
    from hearthd.runtime.checks.self_test import Verdict

# The largest difference between NumPy and a compiled f32 program that rounding can cause.
TOLERANCE = 1e-4
_SEED = 0
# Bytes of the program and the manifest.
_OTHER_FILES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class ArraysToBake:
    """A program to bake, and its weights.

    located  where the weights are; None: in tensors with the names of the parameters
    texts    files to write, by name
    examples_are_calls  whether a golden example is one call of a function, for `require_stable`
    """

    examples_are_calls: ClassVar[bool] = True

    record: BakeRecord
    architecture: str
    config: Mapping[str, Any]
    program: ArraysProgram
    source: WeightSource
    located: Sequence[Located] | None = None
    texts: Mapping[str, str] = field(default_factory=dict)

    def weights(self) -> Sequence[Located]:
        """The weights with the tensors that they are read from."""
        if self.located is not None:
            return self.located
        return [
            Located(weight, tuple((StoredTensor(name),) for name in weight.sources))
            for weight in self.program.weights
        ]

    def example_inputs(self, graph: Graph) -> Arrays:
        """The inputs of the golden example of a function, drawn from a normal distribution."""
        rng = np.random.default_rng(_SEED)
        return {
            name: rng.standard_normal(tensor.shape, np.float32)
            for name, tensor in zip(_input_names(graph), graph.inputs, strict=True)
        }

    def functions(self) -> tuple[FunctionSpec, ...]:
        """The functions of the manifest; raises BakeError."""
        return function_specs(self.program)

    def examples(self, parameters: Mapping[str, Array]) -> list[GoldenExample]:
        """The outputs of each function by NumPy, with the stored parameters."""
        examples = []
        for graph in self.program.graphs:
            inputs = self.example_inputs(graph)
            results = evaluate(graph, list(inputs.values()), parameters)
            outputs = dict(zip(self.program.outputs[graph.name], results, strict=True))
            examples.append(GoldenExample(function=graph.name, inputs=inputs, outputs=outputs))
        return examples

    def require_stable(
        self,
        parameters: Mapping[str, Array],
        examples: Sequence[GoldenExample],
        verdict: Verdict,
    ) -> None:
        """Raise BakeError for a function whose outputs depend on the last bit of its inputs.

        Results of such a function in f32 differ by more than the tolerance in any implementation.
        """
        for graph, example in zip(self.program.graphs, examples, strict=True):
            changed = [
                np.nextafter(array, np.float32(np.inf)) if array.dtype == np.float32 else array
                for array in example.inputs.values()
            ]
            results = evaluate(graph, changed, parameters)
            for (name, expected), result in zip(example.outputs.items(), results, strict=True):
                difference = float(np.abs(result.astype(np.float64) - expected).max())
                if difference > verdict.tolerance:
                    raise BakeError(
                        f"{graph.name}: {name}: the function amplifies rounding: a change of its "
                        f"inputs in the last bit of f32 changes the output by {difference:.3g} in "
                        f"NumPy, and the compiled program differs by "
                        f"{verdict.largest_difference:.3g}, expected at most "
                        f"{verdict.tolerance:.3g}, so no result in f32 is reliable; bake fewer "
                        "steps, or train weights that amplify less"
                    )

    def runtime(self, folder: Path, manifest: Any, program: ProgramFile) -> Functions:
        """A runtime of the bundle, which the golden values are compared with."""
        return ArraysRuntime(folder, manifest, threads=None, program=program)

    def manifest(self, fields: Mapping[str, Any]) -> ArraysManifest:
        """The manifest with the fields that every program has."""
        return ArraysManifest(**fields, precision="f32", tolerance=TOLERANCE)


@dataclass(frozen=True, kw_only=True)
class ModelPlan(ABC):
    """One bake of a model with a tokenizer whose functions an architecture traces.

    record        what the provenance says of it
    destination   where the bundle is written, and for which machines
    architecture  and `config`: what the weights of `source` are
    precision     how matrices are stored
    tokenizer     text of tokenizer.json
    """

    record: BakeRecord
    destination: Destination
    source: WeightSource
    architecture: ArchitectureFiles[Any]
    config: Any
    precision: str
    tokenizer: str

    @abstractmethod
    def program(self) -> ArraysProgram:
        """The traced functions; raises BakeError if the precision cannot store a matrix."""

    @abstractmethod
    def memory(self) -> Memory:
        """The memory that serving takes."""

    def locate(self, program: ArraysProgram) -> tuple[Located, ...]:
        """The tensors of each weight of the program; raises a WeightsError."""
        return locate(self.source, self.architecture, self.config, program)


def bake_model(plan: ModelPlan, to_bake: Callable[..., ArraysToBake], progress: Progress) -> Path:
    """Bake the model of a plan; returns the bundle's folder. Raises what bake_arrays raises.

    `to_bake` is the class of the model, which has `plan` besides the fields of ArraysToBake.
    """
    with progress.stage("trace the model"):
        program = plan.program()
        model = to_bake(
            record=plan.record,
            architecture=plan.architecture.name,
            config=plan.architecture.to_manifest(plan.config),
            program=program,
            source=plan.source,
            located=plan.locate(program),
            texts={TOKENIZER: plan.tokenizer},
            plan=plan,
        )
    bake_arrays(model, plan.destination, progress)
    return plan.destination.out


def bake_arrays(model: ArraysToBake, destination: Destination, progress: Progress) -> None:
    """Bake a bundle, with a program for each target.

    Raises WeightsError, TargetError, CompileError, BakeError or OSError. After an error or
    KeyboardInterrupt, no bundle and no file is left behind.
    """
    program = model.program
    functions = model.functions()
    size = weights_bytes(program.weights) + _OTHER_FILES
    with destination.workspace(size, progress) as workspace:
        folder = workspace.folder
        with compile_in_background(workspace, program.graphs) as compiled:
            for name, text in model.texts.items():
                (folder / name).write_text(text, encoding="utf-8", newline="\n")
            weights = write_weights(workspace, model.source, model.weights())
        with progress.stage("compute golden values with NumPy"), threadpool_limits(1):
            parameters = stored_parameters(program.parameters, folder / PARAMETERS)
            examples = model.examples(parameters)
            write_examples(folder / GOLDEN, examples)
        manifest = write_manifest_and_bill(
            folder,
            _manifest(model, workspace, functions, compiled, weights),
            license_of(model.source),
        )
        for program_file in runnable(manifest):
            with progress.stage(f"compare {program_file.file} with golden values"):
                runtime = model.runtime(folder, manifest, program_file)
                verdict = self_test_arrays(runtime, examples, manifest.tolerance)
            if model.examples_are_calls and not verdict.passed:
                model.require_stable(parameters, examples, verdict)
            require_passed(program_file, verdict)


def function_specs(program: ArraysProgram) -> tuple[FunctionSpec, ...]:
    """The functions of a program for the manifest; raises BakeError for arrays of other types."""
    for graph in program.graphs:
        for tensor in (*graph.inputs, *graph.outputs):
            if tensor.dtype not in (DType.F32, DType.I32):
                raise BakeError(f"{graph.name}: inputs and outputs are f32 or i32, got {tensor}")
    return tuple(_function(graph, program) for graph in program.graphs)


def _function(graph: Graph, program: ArraysProgram) -> FunctionSpec:
    names = _input_names(graph)
    return FunctionSpec(
        name=graph.name,
        inputs=tuple(
            InputSpec(
                name=name,
                shape=tensor.shape,
                dtype=_dtype(tensor),
                default="zeros" if name in program.zeros else "none",
            )
            for name, tensor in zip(names, graph.inputs, strict=True)
        ),
        outputs=tuple(
            OutputSpec(
                name=name,
                shape=tensor.shape,
                dtype=_dtype(tensor),
                takes=names[graph.in_place[i]] if i in graph.in_place else None,
            )
            for i, (name, tensor) in enumerate(
                zip(program.outputs[graph.name], graph.outputs, strict=True)
            )
        ),
    )


def _dtype(tensor: Tensor) -> Literal["f32", "i32"]:
    return "f32" if tensor.dtype is DType.F32 else "i32"


def _input_names(graph: Graph) -> tuple[str, ...]:
    return tuple(tensor.origin.name for tensor in graph.inputs if isinstance(tensor.origin, Input))


def _manifest(
    model: ArraysToBake,
    workspace: Workspace,
    functions: tuple[FunctionSpec, ...],
    compiled: CompiledProgram,
    weights: WeightRecords,
) -> ArraysManifest:
    program = model.program
    return model.manifest(
        {
            "format": FORMAT,
            "architecture": model.architecture,
            "config": dict(model.config),
            "target": workspace.targets[0],
            "other_programs": tuple(compiled.others),
            "statistics": statistics(program.graphs, program.weights),
            "provenance": provenance(model.record, weights.sources, compiled),
            "files": records(sorted(workspace.folder.iterdir()), weights.parameters),
            "functions": functions,
        }
    )
