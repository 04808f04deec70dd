"""Place the results of kernels in memory, and write the kernels as the calls of a chain."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from hearthd.models.dsl.graph import op_of
from hearthd.models.dsl.mlir.chains.chain import Address, Call, Chain
from hearthd.models.dsl.mlir.chains.stages import slice_start
from hearthd.models.dsl.mlir.executables import flat
from hearthd.models.dsl.ops.shape import reshape, slice_

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.dsl.mlir.chains.stages import Stages

_ALIGNMENT = 16  # results start at multiples of this, in f32


@dataclass(frozen=True, eq=False)
class ChainDispatch:
    """A dispatch of a chain in a graph.

    chain    what it calls
    inputs   the tensors that it reads and does not compute, in the order of the chain
    results  the nodes that it computes, and the address of each
    """

    chain: Chain
    inputs: tuple[Tensor, ...]
    results: tuple[tuple[Tensor, Address], ...]


def dispatch_of(levels: Sequence[Sequence[Tensor]], stages: Stages) -> ChainDispatch:
    """The dispatch of the kernels of consecutive levels of a stage."""
    return _Placement([node for level in levels for node in level], stages).dispatch(levels)


class _Placement:
    """The addresses of the results and inputs of a chain."""

    def __init__(self, nodes: Sequence[Tensor], stages: Stages) -> None:
        self._nodes, self._stages = nodes, stages
        self._inputs: dict[int, Tensor] = {}
        self._addresses: dict[int, Address] = {}  # of results
        self._size = 0  # f32 of the results that are not in place, with scratches
        self._place_results()

    def dispatch(self, levels: Sequence[Sequence[Tensor]]) -> ChainDispatch:
        """Call the kernels of each level, after the kernels that fill their scratch."""
        calls: list[tuple[Call, ...]] = []
        for level in levels:
            calls += [
                tuple(call for call in together if call)
                for together in zip_longest(*map(self._calls, level))
            ]
        written = {call.result.argument for level in calls for call in level}
        inputs = tuple(self._inputs.values())
        chain = Chain(
            inputs=tuple(flat(tensor.type) for tensor in inputs),
            in_place=tuple(i for i in range(len(inputs)) if i in written),
            levels=tuple(calls),
            size=self._size,
        )
        results = tuple((node, self._addresses[id(node)]) for node in self._nodes)
        return ChainDispatch(chain, inputs, results)

    def _place_results(self) -> None:
        """Place the results that are not in place one after the other."""
        computed = {id(node) for node in self._nodes}
        for node in self._nodes:
            if self._stages.kernels[id(node)].in_place or id(node) in self._addresses:
                continue
            results = self._stages.adjacent(node)
            for result in results if computed.issuperset(map(id, results)) else [node]:
                self._addresses[id(result)] = Address(None, self._size)
                self._size += result.type.size
            self._size = _aligned(self._size)
        self._size = max(self._size, _ALIGNMENT)  # no tensor is empty

    def _calls(self, node: Tensor) -> tuple[Call, ...]:
        """The call of a node's kernel, after the kernel of its scratch, if any."""
        kernel, (target, *others) = self._stages.kernels[id(node)], node.inputs
        operands = (
            self._operand(target, is_written=kernel.in_place),
            *map(self._operand, others),
        )
        if kernel.in_place:
            self._addresses[id(node)] = operands[0]
        result = self._addresses[id(node)]
        if kernel.scratch is None:
            return (Call(kernel, operands, result),)
        scratch = Address(None, self._size)
        self._size += _aligned(kernel.scratch.size)
        return (
            Call(kernel.scratch.kernel, operands, scratch),
            Call(kernel, (*operands, scratch), result),
        )

    def _operand(self, tensor: Tensor, *, is_written: bool = False) -> Address:
        """The address of an operand, which is an input unless the chain computes it.

        Of a view of an input, the viewed tensor becomes the input, unless the chain writes it.
        """
        address = self._computed(tensor)
        if address is not None:
            return address
        source, offset = (tensor, 0) if is_written else _viewed(tensor)
        self._inputs.setdefault(id(source), source)
        return Address(list(self._inputs).index(id(source)), offset)

    def _computed(self, tensor: Tensor) -> Address | None:
        """The address of a result or of a view of results; None for another tensor."""
        if id(tensor) in self._addresses:
            return self._addresses[id(tensor)]
        if not self._stages.is_view(tensor):
            return None
        addresses = [self._computed(operand) for operand in tensor.inputs]
        start = addresses[0]
        if start is None or None in addresses:
            return None
        offset = slice_start(tensor) if op_of(tensor) is slice_ else 0
        assert offset is not None
        return Address(start.argument, start.offset + offset)


def _viewed(tensor: Tensor) -> tuple[Tensor, int]:
    """The tensor that holds a tensor's elements one after the other, and their offset in it."""
    offset = 0
    while op_of(tensor) in (reshape, slice_):
        start = slice_start(tensor) if op_of(tensor) is slice_ else 0
        if start is None:
            break
        offset += start
        tensor = tensor.inputs[0]
    return tensor, offset


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
