"""Kernels in the text of a module: an executable for each form, and a dispatch for each call.

Written as the compiler would have formed them, so that it inlines and places them as its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.dsl.ops.creation import literal
from models.dsl.types import DType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from models.dsl.ops.record import Kernel
    from models.dsl.types import TensorType


@dataclass(frozen=True, kw_only=True)
class Executable:
    """A kernel for inputs and a result of certain types."""

    kernel: Kernel
    inputs: tuple[TensorType, ...]
    result: TensorType

    @property
    def name(self) -> str:
        """Its symbol, and that of the function in it: what it is, in full."""
        kinds = (kind.mlir.removeprefix("tensor<").removesuffix(">") for kind in self.inputs)
        numbers = map(str, (*self.kernel.sizes, *self.kernel.scalars))
        return "_".join([self.kernel.function, *kinds, *numbers])

    def dispatch(self, operands: list[str]) -> str:
        """The operation that calls it."""
        types = ", ".join(kind.mlir for kind in self.inputs)
        called = f'@"{self.name}"::@"{self.name}"({", ".join(operands)})'
        return f"flow.dispatch {called} : ({types}) -> {self.result.mlir}"

    def text(self) -> Iterator[str]:
        """Its lines in the module.

        The result is passed whole to every workgroup: each writes its own part, in place.
        """
        reads = [_view("readonly", kind) for kind in self.inputs]
        writes = _view("writeonly", self.result)
        arguments = ", ".join(f"%a{i}: {view}" for i, view in enumerate([*reads, writes]))
        yield f'  flow.executable private @"{self.name}" {{'
        yield (
            f'    flow.executable.export public @"{self.name}" workgroups()'
            " -> (index, index, index) {"
        )
        yield f"      %workgroups = arith.constant {self.kernel.workgroups} : index"
        yield "      %one = arith.constant 1 : index"
        yield "      flow.return %workgroups, %one, %one : index, index, index"
        yield "    }"
        yield "    builtin.module {"
        yield f'      func.func @"{self.name}"({arguments}) {{'
        for i, (kind, view) in enumerate(zip(self.inputs, reads, strict=True)):
            yield (
                f"        %x{i} = iree_tensor_ext.dispatch.tensor.load %a{i}, {_whole(kind)}"
                f" : {view} -> {kind.mlir}"
            )
        yield f"        %empty = tensor.empty() : {self.result.mlir}"
        yield from self._call()
        yield (
            f"        iree_tensor_ext.dispatch.tensor.store %y, %a{len(reads)},"
            f" {_whole(self.result)} : {self.result.mlir} -> {writes}"
        )
        yield from ("        return", "      }", "    }", "  }")

    def _call(self) -> Iterator[str]:
        yield "        %id = flow.dispatch.workgroup.id[0] : index"
        for i, size in enumerate(self.kernel.sizes):
            yield f"        %size{i} = arith.constant {size} : index"
        for i, scalar in enumerate(self.kernel.scalars):
            yield f"        %scalar{i} = arith.constant {literal(scalar, DType.F32)} : f32"
        sizes = ["%id", *(f"%size{i}" for i in range(len(self.kernel.sizes)))]
        scalars = [f"%scalar{i}" for i in range(len(self.kernel.scalars))]
        numbers = ", ".join([*sizes, *scalars])
        kinds = ", ".join(["index"] * len(sizes) + ["f32"] * len(scalars))
        inputs = ", ".join(f"%x{i}" for i in range(len(self.inputs)))
        types = ", ".join(kind.mlir for kind in self.inputs)
        strides = ", ".join(["[]"] * (len(self.inputs) + 1))
        yield (
            "        %y = iree_codegen.ukernel.generic {hal.executable.objects ="
            f' [#hal.executable.object<{{path = "{self.kernel.function}.o"}}>]}}'
            f' "hearth_{self.kernel.function}" ins({inputs} : {types})'
            f" outs(%empty : {self.result.mlir})"
            f" ({numbers} : {kinds})"
            " fn_def_attrs {hal.import.static, llvm.bareptr = true}"
            f" strided_dims([{strides}]) -> {self.result.mlir}"
        )


def flat(kind: TensorType) -> TensorType:
    """A type as executables have it: the compiler fails there on axes of extent 1."""
    return kind.with_shape(kind.size) if 1 in kind.shape else kind


def _view(access: str, kind: TensorType) -> str:
    return f"!iree_tensor_ext.dispatch.tensor<{access}:{kind.mlir}>"


def _whole(kind: TensorType) -> str:
    zeros, ones = [0] * kind.rank, [1] * kind.rank
    return f"offsets = {zeros}, sizes = {list(kind.shape)}, strides = {ones}"
