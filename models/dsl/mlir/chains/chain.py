"""A chain, its calls, and the executable around its C function."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from hearthd.models.dsl.mlir.chains.c_function import WORKGROUPS, c_lines
from hearthd.models.dsl.mlir.executables import (
    CLOSED,
    dispatch_tensor,
    loaded,
    opened,
    passed,
    stored,
)
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.models.dsl.ops.record import Kernel

# The state of chain.h.
STATE = TensorType((64,), DType.I32)


@dataclass(frozen=True)
class Address:
    """An argument of a chain, or None for the results of the chain, and an offset in elements."""

    argument: int | None
    offset: int = 0


@dataclass(frozen=True)
class Call:
    """A kernel that reads `inputs` and writes to `result`."""

    kernel: Kernel
    inputs: tuple[Address, ...]
    result: Address


@dataclass(frozen=True)
class Chain:
    """A chain for inputs of certain types.

    inputs    the tensors that it reads
    in_place  which of them it writes
    levels    calls that may run at the same time, level by level
    size      f32 of all results that are not in place
    """

    inputs: tuple[TensorType, ...]
    in_place: tuple[int, ...]
    levels: tuple[tuple[Call, ...], ...]
    size: int

    @cached_property
    def name(self) -> str:
        """Its symbol and the name of its C file: a hash of its code and the types of its inputs."""
        types = [self.inputs[i].mlir for i in self.arguments]
        content = "\n".join([*types, str(len(self.in_place)), *c_lines(self, "")])
        return f"chain_{hashlib.sha256(content.encode()).hexdigest()[:16]}"

    @property
    def calls(self) -> Iterator[Call]:
        """All calls, in their order."""
        return (call for level in self.levels for call in level)

    @property
    def functions(self) -> tuple[str, ...]:
        """The files' names of the kernels that it calls."""
        return tuple(sorted({call.kernel.function for call in self.calls}))

    @property
    def arguments(self) -> tuple[int, ...]:
        """The inputs in the order of the C function: first those that are only read."""
        read = (i for i in range(len(self.inputs)) if i not in self.in_place)
        return (*read, *self.in_place)

    @property
    def results(self) -> TensorType:
        """The type of the results that are not in place."""
        return TensorType((self.size,), DType.F32)

    @property
    def c_text(self) -> str:
        """The C function."""
        return "\n".join(c_lines(self, self.name))

    def dispatch(self, operands: list[str], state: str) -> str:
        """The operation that calls it. Results: those in place, the state, then the others."""
        types = ", ".join([*map(passed, self.inputs), STATE.mlir])
        called = f'@"{self.name}"::@"{self.name}"({", ".join([*operands, state])})'
        tied = [operands[i] for i in self.in_place]
        results = ", ".join([*tied, state, self.results.mlir])
        return f"flow.dispatch {called} : ({types}) -> ({results})"

    def text(self) -> Iterator[str]:
        """Its lines in the module."""
        types = [*self.inputs, STATE, self.results]
        access = ["readonly"] * len(self.inputs) + ["readwrite", "writeonly"]
        for i in self.in_place:
            access[i] = "readwrite"
        arguments = list(map(dispatch_tensor, access, types))
        state, results = len(self.inputs), len(self.inputs) + 1
        yield from opened(self.name, arguments, WORKGROUPS)
        for i in range(results):
            yield loaded(i, types[i], arguments[i])
        yield f"        %x{results} = tensor.empty() : {self.results.mlir}"
        written = [*self.in_place, state, results]
        yield self._call([i for i in range(state) if i not in self.in_place], written)
        for result, i in enumerate(written):
            yield stored(f"%y#{result}", i, types[i], arguments[i])
        yield from CLOSED

    def _call(self, read: list[int], written: list[int]) -> str:
        types = [*self.inputs, STATE, self.results]

        def listed(arguments: list[int]) -> tuple[str, str]:
            names = ", ".join(f"%x{i}" for i in arguments)
            return names, ", ".join(passed(types[i]) for i in arguments)

        (inputs, input_types), (outputs, output_types) = listed(read), listed(written)
        objects = ", ".join(
            f'#hal.executable.object<{{path = "{name}.o"}}>'
            for name in (self.name, *self.functions)
        )
        ins = f" ins({inputs} : {input_types})" if read else ""
        return (
            f"        %y:{len(written)} = iree_codegen.ukernel.generic"
            f' {{hal.executable.objects = [{objects}]}} "hearth_{self.name}"{ins}'
            f" outs({outputs} : {output_types})"
            " fn_def_attrs {hal.import.static, llvm.bareptr = true}"
            f" strided_dims([{', '.join(['[]'] * (len(read) + len(written)))}]) -> {output_types}"
        )
