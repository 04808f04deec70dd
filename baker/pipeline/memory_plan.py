"""The memory that serving a traced program takes, and whether it fits, before it is compiled.

It knows graphs, and how the compiler treats weights: a product's are laid out anew when the
program is loaded, the others are read where they lie. A step is estimated by the values that must
be kept at once, and half of that again, since the compiler lets independent ops run beside each
other; it joins most ops with what reads them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING

from hearthd.baker.atomic_folder import BakeError
from hearthd.bundle import MIN_CONTEXT, Footprint, language_memory, megabytes
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.graph import Apply
from hearthd.models.dsl.ops import Reads
from hearthd.models.dsl.types import DType, TypeRuleError
from hearthd.models.precision import NAMED_PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence, Set

    from hearthd.bundle import Memory
    from hearthd.models.dsl.graph import Graph, Tensor
    from hearthd.models.dsl.types import TensorType
    from hearthd.models.program import Program, ProgramOptions


def check_fits(
    program: Program,
    options: ProgramOptions,
    slots: int,
    limit: int,
    trace: Callable[[ProgramOptions], Program],
) -> None:
    """Raise BakeError unless a program can be served with all its slots in `limit` bytes.

    The message has the parts of the sum, and what would fit; `trace` makes the program of other
    options.
    """
    memory = program_memory(program, options.context)
    if memory.needed(slots) <= limit:
        return
    fewer = (n for n in range(slots - 1, 0, -1) if memory.needed(n) <= limit)
    smaller = (
        *(replace(options, context=context) for context in _halved(options.context)),
        *(
            replace(options, precision=name)
            for name in NAMED_PRECISIONS
            if name != options.precision
        ),
    )
    fitting = (_flag(options, other) for other in smaller if _fits(trace, other, slots, limit))
    would = [f"--slots {n}" for n in islice(fewer, 1)] + list(fitting)
    advice = f"specify {' or '.join(would)}" if would else _least(options, limit, trace)
    raise BakeError(
        f"--max-memory: got {megabytes(limit)} MB, but {slots} slots of {options.context} tokens "
        f"in {options.precision} need {memory.formula(slots)}; {advice}"
    )


def _least(options: ProgramOptions, limit: int, trace: Callable[[ProgramOptions], Program]) -> str:
    """What to specify where neither slots nor context nor precision is enough alone."""
    context = min(_halved(options.context), default=options.context)
    needed = program_memory(trace(replace(options, context=context)), context).needed(1)
    more = f"at least --max-memory {-(-needed // 10**6)}M, with " if needed > limit else ""
    return f"specify {more}--slots 1 --context {context}"


def needs_streaming(program: Program, context: int, slots: int, limit: int) -> bool:
    """Whether a program fits into `limit` bytes only if its experts are read from their file."""
    streamed = program_memory(program, context, streamed=True)
    return program_memory(program, context).needed(slots) > limit >= streamed.needed(slots)


def too_large(program: Program, context: int, slots: int, limit: int | None) -> str | None:
    """Why a program cannot be served with all its slots in `limit` bytes, if so."""
    memory = program_memory(program, context)
    if limit is None or memory.needed(slots) <= limit:
        return None
    if needs_streaming(program, context, slots, limit):
        return None
    return f"needs {memory.formula(slots)}, more than --max-memory {megabytes(limit)} MB"


def _fits(
    trace: Callable[[ProgramOptions], Program], options: ProgramOptions, slots: int, limit: int
) -> bool:
    try:
        return program_memory(trace(options), options.context).needed(slots) <= limit
    except TypeRuleError:  # not every model's matrices can be stored in groups
        return False


def program_memory(program: Program, context: int, *, streamed: bool = False) -> Memory:
    """The memory that serving the program takes with a context of `context` positions.

    `streamed` as in `language_footprint`.
    """
    return language_memory(
        language_footprint(program, streamed=streamed),
        program.vocab_size,
        program.row_width,
        context,
        program.caches,
        [point for point, _ in program.entry_points],
        program.adapters,
    )


def _halved(context: int) -> Iterator[int]:
    """Half of a context, a quarter and an eighth, as far as the golden prompts fit."""
    return (context // divisor for divisor in (2, 4, 8) if context // divisor >= MIN_CONTEXT)


def _flag(options: ProgramOptions, other: ProgramOptions) -> str:
    """The flag that makes the other options of these: a context or a precision."""
    names = ("context", "precision")
    return next(
        f"--{name} {getattr(other, name)}"
        for name in names
        if getattr(other, name) != getattr(options, name)
    )


def footprint(graphs: Sequence[Graph], parameters: Mapping[str, TensorType]) -> Footprint:
    """The footprint of a program: no weight is read."""
    uses = [use for graph in graphs for use in _uses(graph)]
    laid_out = {name for name, reads in uses if reads is Reads.LAID_OUT}
    looked_up = {name for name, reads in uses if reads is Reads.LOOKED_UP}
    in_place = {name for name, reads in uses if reads is Reads.IN_PLACE} - laid_out

    def size(names: set[str]) -> int:
        return sum(parameters[name].nbytes for name in names)

    return Footprint(
        laid_out=size(laid_out),
        read=size(in_place),
        looked_up=size(looked_up - in_place),
        calls={graph.name: call_bytes(graph) for graph in graphs},
    )


def language_footprint(program: Program, *, streamed: bool = False) -> Footprint:
    """The footprint of a language model; `streamed`: its experts are read from their file."""
    weights = footprint(program.graphs, program.parameters)
    if not streamed:
        return weights
    shares = {name: share for name, share in _read_shares(program).items() if share < 1}
    sizes = {name: program.parameters[name].nbytes for name in shares}
    return replace(
        weights,
        experts=sum(sizes.values()),
        token_experts=sum(int(sizes[name] * share) for name, share in shares.items()),
        expert_arrays=_expert_counts(program, shares.keys()),
    )


def _expert_counts(program: Program, names: Set[str]) -> dict[str, int]:
    """The number of experts in each of these parameters."""
    counts: dict[str, int] = {}
    for graph in program.graphs:
        weights = {id(tensor): name for name, tensor in graph.parameters.items()}
        for node in graph.nodes:
            assert isinstance(node.origin, Apply)
            if "experts" in node.origin.attrs:
                read = {weights[id(source)] for source in node.inputs if id(source) in weights}
                counts |= dict.fromkeys(read & names, node.origin.attrs["experts"])
    return counts


def _uses(graph: Graph) -> Iterator[tuple[str, Reads]]:
    """The name of each parameter, with how an op reads it, for every op that does."""
    names = {id(tensor): name for name, tensor in graph.parameters.items()}
    for node in graph.nodes:
        assert isinstance(node.origin, Apply)
        for source in node.inputs:
            if id(source) in names:
                yield names[id(source)], node.origin.op.reads


def token_bytes(program: Program) -> int:
    """The bytes of weights that a decode of one sequence reads.

    Experts count as far as a token is routed to them, and the arrays of `refining_bytes` do not.
    """
    return _read_bytes(program, refining=False)


def refining_bytes(program: Program) -> int:
    """The bytes of arrays that a decode reads in part, by blocks, for the logits that matter."""
    return _read_bytes(program, refining=True)


def _read_bytes(program: Program, *, refining: bool) -> int:
    partial = {name for weight in program.weights for name in weight.partial}
    return sum(
        int(program.parameters[name].nbytes * share)
        for name, share in _read_shares(program).items()
        if (name in partial) == refining
    )


def _read_shares(program: Program) -> dict[str, Fraction]:
    """The share of each parameter that a decode of one sequence reads: 1 if it has no experts."""
    point = next(point for point, _ in program.entry_points if point.kind == "decode")
    graph = next(graph for graph in program.graphs if graph.name == point.name)
    names = {id(tensor): name for name, tensor in graph.parameters.items()}
    shares: dict[str, Fraction] = {}
    for node in graph.nodes:
        assert isinstance(node.origin, Apply)
        op, experts = node.origin.op, node.origin.attrs.get("experts", 1)
        share = Fraction(min(experts, node.shape[0]) if experts > 1 else 1, experts)
        for source in node.inputs:
            if id(source) in names and op.reads is not Reads.LOOKED_UP:
                shares[names[id(source)]] = share
    return shares


def call_bytes(graph: Graph) -> int:
    """The bytes that a call of a function holds at most, beside its inputs, caches and weights.

    A result that is an argument takes no more.
    """
    results = {
        id(out): out
        for i, out in enumerate(graph.outputs)
        if i not in graph.in_place and isinstance(out.origin, Apply)
    }
    ends = _last_readers(graph)
    leaving: Counter[int] = Counter()
    held = most = 0
    for at, node in enumerate(graph.nodes):
        if id(node) in ends and id(node) not in results:
            held += _bytes(node)
            leaving[ends[id(node)]] += _bytes(node)
        most = max(most, held)
        held -= leaving[at]
    return sum(out.type.nbytes for out in results.values()) + most * 3 // 2


def _bytes(node: Tensor) -> int:
    """The bytes of a value, and of what its kernel needs to compute it."""
    assert isinstance(node.origin, Apply)
    op, scratch = node.origin.op, None
    if isinstance(op, Fused) and op.kernel is not None:
        types = tuple(source.type for source in node.inputs)
        scratch = op.kernel(types, node.type, node.origin.attrs).scratch
    return node.type.nbytes + (scratch.size * DType.F32.numpy.itemsize if scratch else 0)


def _last_readers(graph: Graph) -> dict[int, int]:
    """The values that are stored, but in place, with the index of the last node that reads each."""
    output_ids = {id(out) for out in graph.outputs}
    readers = Counter(id(source) for node in graph.nodes for source in set(node.inputs))
    needs: dict[int, frozenset[int]] = {}  # by value: the stored ones that it is computed from
    last: dict[int, int] = {}
    for at, node in enumerate(graph.nodes):
        assert isinstance(node.origin, Apply)
        below = frozenset().union(*(needs.get(id(source), ()) for source in node.inputs))
        last |= dict.fromkeys(below, at)
        shared = len(below) > 1 and readers[id(node)] > 1
        if shared or id(node) in output_ids or node.origin.op.is_stored:
            below = frozenset((id(node),))
            last[id(node)] = at
        needs[id(node)] = below
    in_place = {id(graph.outputs[i]) for i in graph.in_place}
    return {value: at for value, at in last.items() if value not in in_place}
