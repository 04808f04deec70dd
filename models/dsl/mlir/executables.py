"""Kernels in the text of a module: an executable for each form, and a dispatch for each call.

Written as the compiler would have formed them, so that it inlines and places them as its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearthd.models.dsl.ops.creation import literal
from hearthd.models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hearthd.models.dsl.ops.record import Kernel
    from hearthd.models.dsl.types import TensorType


@dataclass(frozen=True, kw_only=True)
class Executable:
    """A kernel for inputs and a result of certain types."""

    kernel: Kernel
    inputs: tuple[TensorType, ...]
    result: TensorType

    def __post_init__(self) -> None:
        assert self.kernel.scratch is None, "only a chain calls two kernels"

    @property
    def name(self) -> str:
        """The symbol of the executable and of its function: kernel, shapes, sizes, scalars."""
        shapes = (
            tensor_type.mlir.removeprefix("tensor<").removesuffix(">")
            for tensor_type in self.inputs
        )
        scalars = (literal(scalar, DType.F32) for scalar in self.kernel.scalars)
        return "_".join([self.kernel.function, *shapes, *map(str, self.kernel.sizes), *scalars])

    @property
    def functions(self) -> tuple[str, ...]:
        """The files' names of the kernels that it calls."""
        return (self.kernel.function,)

    def dispatch(self, operands: list[str]) -> str:
        """The operation that calls it."""
        types = ", ".join(map(passed, self.inputs))
        called = f'@"{self.name}"::@"{self.name}"({", ".join(operands)})'
        result = operands[0] if self.kernel.in_place else self.result.mlir
        return f"flow.dispatch {called} : ({types}) -> {result}"

    def text(self) -> Iterator[str]:
        """Its lines in the module.

        The result is passed whole to every workgroup: each writes its own part, in place.
        """
        in_place = self.kernel.in_place
        arguments = [dispatch_tensor("readonly", tensor_type) for tensor_type in self.inputs]
        if in_place:
            arguments[0] = dispatch_tensor("readwrite", self.result)
        else:
            arguments.append(dispatch_tensor("writeonly", self.result))
        written = 0 if in_place else len(self.inputs)
        yield from opened(self.name, arguments, self.kernel.workgroups)
        for i, (tensor_type, argument) in enumerate(zip(self.inputs, arguments, strict=False)):
            yield loaded(i, tensor_type, argument)
        if not in_place:
            yield f"        %empty = tensor.empty() : {self.result.mlir}"
        yield from self._call()
        yield stored("%y", written, self.result, arguments[written])
        yield from CLOSED

    def _call(self) -> Iterator[str]:
        yield "        %id = flow.dispatch.workgroup.id[0] : index"
        for i, size in enumerate(self.kernel.sizes):
            yield f"        %size{i} = arith.constant {size} : index"
        for i, scalar in enumerate(self.kernel.scalars):
            yield f"        %scalar{i} = arith.constant {literal(scalar, DType.F32)} : f32"
        sizes = ["%id", *(f"%size{i}" for i in range(len(self.kernel.sizes)))]
        scalars = [f"%scalar{i}" for i in range(len(self.kernel.scalars))]
        numbers = ", ".join([*sizes, *scalars])
        number_types = ", ".join(["index"] * len(sizes) + ["f32"] * len(scalars))
        first = 1 if self.kernel.in_place else 0
        inputs = ", ".join(f"%x{i}" for i in range(first, len(self.inputs)))
        types = ", ".join(map(passed, self.inputs[first:]))
        strides = ", ".join(["[]"] * (len(self.inputs) - first + 1))
        out = "%x0" if self.kernel.in_place else "%empty"
        yield (
            "        %y = iree_codegen.ukernel.generic {hal.executable.objects ="
            f' [#hal.executable.object<{{path = "{self.kernel.function}.o"}}>]}}'
            f' "hearth_{self.kernel.function}" ins({inputs} : {types})'
            f" outs({out} : {self.result.mlir})"
            f" ({numbers} : {number_types})"
            " fn_def_attrs {hal.import.static, llvm.bareptr = true}"
            f" strided_dims([{strides}]) -> {self.result.mlir}"
        )


def flat(tensor_type: TensorType) -> TensorType:
    """A type as executables have it: the compiler fails there on axes of extent 1."""
    return tensor_type.with_shape(tensor_type.size) if 1 in tensor_type.shape else tensor_type


def passed(tensor_type: TensorType) -> str:
    """The MLIR type of a kernel's argument: i16 in place of bf16.

    The compiler forgets the object files of a call with bf16.
    """
    return tensor_type.mlir.replace("bf16", "i16")


def dispatch_tensor(access: str, tensor_type: TensorType) -> str:
    """The type of an argument of an executable's function."""
    return f"!iree_tensor_ext.dispatch.tensor<{access}:{passed(tensor_type)}>"


def opened(name: str, types: Sequence[str], workgroups: int) -> Iterator[str]:
    """The lines of an executable up to its function's body; arguments are `%a0`, `%a1`, ..."""
    arguments = ", ".join(f"%a{i}: {argument}" for i, argument in enumerate(types))
    yield f'  flow.executable private @"{name}" {{'
    yield f'    flow.executable.export public @"{name}" workgroups() -> (index, index, index) {{'
    yield f"      %workgroups = arith.constant {workgroups} : index"
    yield "      %one = arith.constant 1 : index"
    yield "      flow.return %workgroups, %one, %one : index, index, index"
    yield "    }"
    yield "    builtin.module {"
    yield f'      func.func @"{name}"({arguments}) {{'


# The lines after the body of its function.
CLOSED = ("        return", "      }", "    }", "  }")


def loaded(number: int, tensor_type: TensorType, argument: str) -> str:
    """The line that makes a tensor `%x` of an argument."""
    return (
        f"        %x{number} = iree_tensor_ext.dispatch.tensor.load %a{number},"
        f" {_all_of(tensor_type)} : {argument} -> {passed(tensor_type)}"
    )


def stored(value: str, number: int, tensor_type: TensorType, argument: str) -> str:
    """The line that writes a value to an argument."""
    return (
        f"        iree_tensor_ext.dispatch.tensor.store {value}, %a{number},"
        f" {_all_of(tensor_type)} : {tensor_type.mlir} -> {argument}"
    )


def _all_of(tensor_type: TensorType) -> str:
    zeros, ones = [0] * tensor_type.rank, [1] * tensor_type.rank
    return f"offsets = {zeros}, sizes = {list(tensor_type.shape)}, strides = {ones}"
