"""Divide the kernels of each stage into chains."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

from hearthd.models.dsl.graph import Apply
from hearthd.models.dsl.mlir.chains.addresses import ChainDispatch, dispatch_of
from hearthd.models.dsl.mlir.chains.stages import Stages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hearthd.models.dsl.graph import Graph, Tensor

# The largest chain: bytes of results, and tensors that it reads. A kernel whose result is larger
# runs so long that waiting does not matter. IREE passes 32 tensors to a dispatch, among them the
# state and the results.
_MAX_BYTES, _MAX_INPUTS = 1 << 21, 30

_Level: TypeAlias = "list[Tensor]"
_Segment: TypeAlias = "list[_Level]"


def chain_dispatches(graph: Graph) -> Iterator[ChainDispatch]:
    """The chains of an inlined graph: of at least two kernels, or of one that has to be in one.

    That is a kernel with a scratch, and one that reads part of what is written in place, which the
    compiler would copy.
    """
    stages = Stages(graph)
    for nodes in stages.nodes():
        for dispatch in _joined(_segments(_levels(nodes, stages), stages), stages):
            if len(dispatch.results) > 1 and _is_small(dispatch):
                yield dispatch
                continue
            for node, _ in dispatch.results:
                if stages.kernels[id(node)].scratch or _reads_in_place(node, stages):
                    yield dispatch_of([[node]], stages)


def _reads_in_place(node: Tensor, stages: Stages) -> bool:
    return any(
        stages.kernels[id(source)].in_place
        for operand in node.inputs
        if stages.is_view(operand)
        for source in stages.sources(operand)
    )


def _levels(nodes: Sequence[Tensor], stages: Stages) -> list[_Level]:
    """The levels of a stage: each kernel is in the first one after all that it reads.

    One that reads nothing of the stage is in the last one before all that read it.
    """
    level_of: dict[int, int] = {}
    starts: dict[int, int] = {}  # of kernels that read nothing of the stage
    for node in nodes:
        sources = [source for operand in node.inputs for source in stages.sources(operand)]
        before = [id(source) for source in sources if id(source) in level_of]
        level_of[id(node)] = max((level_of[source] + 1 for source in before), default=0)
        if not before:
            starts[id(node)] = len(nodes)
        for source in starts.keys() & before:
            starts[source] = min(starts[source], level_of[id(node)] - 1)
    level_of |= {key: level for key, level in starts.items() if level < len(nodes)}
    levels: list[_Level] = [[] for _ in range(1 + max(level_of.values()))]
    for node in nodes:
        levels[level_of[id(node)]].append(node)
    return levels


def _segments(levels: list[_Level], stages: Stages) -> list[_Segment]:
    """Divide levels where the fewest tensors cross, so that all layers have the same segments."""
    crossing = _crossing(levels, stages)
    ends = [i + 1 for i, count in enumerate(crossing) if count == min(crossing)]
    return [levels[a:b] for a, b in zip([0, *ends], [*ends, len(levels)], strict=True)]


def _crossing(levels: list[_Level], stages: Stages) -> list[int]:
    """How many tensors cross the end of each level but the last: computed before it, read after it.

    A tensor that the stage does not compute counts if only one kernel reads it, as with the
    residual stream. Tables that all layers read do not count.
    """
    computed: dict[int, int] = defaultdict(lambda: -1)
    readers: dict[int, list[int]] = defaultdict(list)
    for level, nodes in enumerate(levels):
        for node in nodes:
            computed[id(node)] = level
            for operand in node.inputs:
                for source in stages.sources(operand) or [operand]:
                    if isinstance(source.origin, Apply):
                        readers[id(source)].append(level)
    last_reader = {
        key: max(by_level)
        for key, by_level in readers.items()
        if key in computed or len(by_level) == 1
    }
    return [
        sum(computed[key] <= level < last for key, last in last_reader.items())
        for level in range(len(levels) - 1)
    ]


def _joined(segments: list[_Segment], stages: Stages) -> list[ChainDispatch]:
    """Chains of consecutive segments: each takes the next one while it is small enough.

    A segment that reads too many tensors is divided into its levels first.
    """
    divided: list[_Segment] = []
    for segment in segments:
        is_wide = len(dispatch_of(segment, stages).inputs) > _MAX_INPUTS
        divided += [[level] for level in segment] if is_wide else [segment]
    chains: list[ChainDispatch] = []
    levels: list[_Level] = []  # of the last chain
    for segment in divided:
        longer = dispatch_of([*levels, *segment], stages)
        if levels and _is_small(longer):
            levels = [*levels, *segment]
            chains[-1] = longer
        else:
            levels = segment
            chains.append(dispatch_of(segment, stages))
    return chains


def _is_small(dispatch: ChainDispatch) -> bool:
    size = sum(node.type.nbytes for node, at in dispatch.results if at.argument is None)
    return size <= _MAX_BYTES and len(dispatch.inputs) <= _MAX_INPUTS
