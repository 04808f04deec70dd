"""Kernels in one dispatch: the C function that calls them, and the executable around it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hearthd.models.dsl.mlir.executables import CLOSED, loaded, opened, passed, stored, view
from hearthd.models.dsl.types import DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.models.dsl.ops.record import Kernel

# The workgroups of a chain, and so the largest number of threads that run it.
WORKGROUPS = 16
# The most bytes of an array that a thread fetches while it waits: with 16 KB and with 256 KB, steps
# took as long.
_FETCHED = 1 << 16
# Of a call with more than _MANY workgroups, such as one for each row of a prefill, a thread takes
# _TOGETHER at a time: to take one and to count it takes as long as to normalize a row.
_MANY, _TOGETHER = 64, 4
# The state of chain.h.
STATE = TensorType((48,), DType.I32)


@dataclass(frozen=True)
class Place:
    """A tensor's place in memory: an argument, None for the results, and an offset in elements."""

    argument: int | None
    offset: int = 0


@dataclass(frozen=True)
class Call:
    """A kernel of a chain. It reads `inputs` and writes to `result`."""

    kernel: Kernel
    inputs: tuple[Place, ...]
    result: Place

    @property
    def together(self) -> int:
        """The workgroups that have one ticket."""
        count = self.kernel.workgroups
        return _TOGETHER if count > _MANY and count % _TOGETHER == 0 else 1

    @property
    def tickets(self) -> int:
        """How many tickets it has."""
        return self.kernel.workgroups // self.together


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
        whole = "\n".join([*types, str(len(self.in_place)), *self._c_lines("")])
        return f"chain_{hashlib.sha256(whole.encode()).hexdigest()[:16]}"

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
        return "\n".join(self._c_lines(self.name))

    def _c_lines(self, name: str) -> Iterator[str]:
        yield '#include "chain.h"'
        for function in self.functions:
            kernel = next(one for one in self.calls if one.kernel.function == function)
            pointers = ["void *, size_t"] * (_pointers(kernel))
            sizes = ["size_t"] * (1 + len(kernel.kernel.sizes))
            scalars = ["float"] * len(kernel.kernel.scalars)
            yield f"int hearth_{function}({', '.join([*pointers, *sizes, *scalars])});"
        arguments = ", ".join(f"char *a{i}, size_t a{i}_at" for i in self.arguments)
        yield f"int hearth_{name}({arguments},"
        yield "    int32_t *state, size_t state_at, float *results, size_t results_at) {"
        yield "    Chain *chain = (Chain *)(state + state_at);"
        yield "    (void)results, (void)results_at;"  # where all results are in place
        yield "    for (;;) {"
        yield "        size_t ticket = (size_t)take_ticket(chain);"
        first = 0
        for level in self.levels:
            start = first
            for call in level:
                yield f"        if (ticket < {first + call.tickets}) {{"
                if start:
                    own = self._own(call, first)
                    yield from (f"            fetch_until(chain, {start}, {one});" for one in own)
                    yield f"            wait_for(chain, {start});"
                yield from self._c_call(call, first)
                yield "            call_done(chain);"
                yield "            continue;"
                yield "        }"
                first += call.tickets
        yield "        break;"
        yield "    }"
        yield f"    leave_chain(chain, {WORKGROUPS});"
        yield from ("    return 0;", "}", "")

    def _own(self, call: Call, first_ticket: int) -> Iterator[str]:
        """Where what only this workgroup reads begins, and how many bytes of it are fetched."""
        for one, count in zip(call.inputs, call.kernel.own, strict=False):
            if count and one.argument is not None:
                width = self.inputs[one.argument].dtype.numpy.itemsize
                own = count * call.together
                at = f"a{one.argument}_at + {one.offset} + (ticket - {first_ticket}) * {own}"
                yield f"a{one.argument} + ({at}) * {width}, {min(own * width, _FETCHED)}"

    def _c_call(self, call: Call, first_ticket: int) -> Iterator[str]:
        def place(one: Place) -> str:
            if one.argument is None:
                return f"results, results_at + {one.offset}"
            return f"a{one.argument}, a{one.argument}_at + {one.offset}"

        read = call.inputs[1:] if call.kernel.in_place else call.inputs
        places = [place(one) for one in (*read, call.result)]
        sizes = ["i", *map(str, call.kernel.sizes)]
        scalars = [f"{float(np.float32(scalar)).hex()}f" for scalar in call.kernel.scalars]
        arguments = ", ".join([*places, *sizes, *scalars])
        begin = f"(ticket - {first_ticket}) * {call.together}"
        yield f"            for (size_t i = {begin}; i < {begin} + {call.together}; i++)"
        yield f"                hearth_{call.kernel.function}({arguments});"

    def dispatch(self, operands: list[str], state: str) -> str:
        """The operation that calls it: its results are those in place, the state and the others."""
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
        views = [view(*one) for one in zip(access, types, strict=True)]
        state, results = len(self.inputs), len(self.inputs) + 1
        yield from opened(self.name, views, WORKGROUPS)
        for i in range(results):
            yield loaded(i, types[i], views[i])
        yield f"        %x{results} = tensor.empty() : {self.results.mlir}"
        written = [*self.in_place, state, results]
        yield self._call([i for i in range(state) if i not in self.in_place], written)
        for place, i in enumerate(written):
            yield stored(f"%y#{place}", i, types[i], views[i])
        yield from CLOSED

    def _call(self, read: list[int], written: list[int]) -> str:
        types = [*self.inputs, STATE, self.results]

        def listed(places: list[int]) -> tuple[str, str]:
            names = ", ".join(f"%x{i}" for i in places)
            return names, ", ".join(passed(types[i]) for i in places)

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


def _pointers(call: Call) -> int:
    return len(call.inputs) + (0 if call.kernel.in_place else 1)
