"""Write graphs as one StableHLO module, in MLIR's generic form.

Each graph becomes a public function. All types come from the ops' shape rules; an op's lowering
gives its name and attributes only, or a loop around another graph. Weights are globals that the
functions share; the runtime looks each up by scope and name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hearthd.models.dsl.composite import inlined
from hearthd.models.dsl.graph import Apply, Graph, Tensor, op_of, readers_of
from hearthd.models.dsl.iree_faults.barriers import is_behind_barrier, operands_behind_barriers
from hearthd.models.dsl.iree_faults.forms import packed_booleans
from hearthd.models.dsl.iree_faults.merged_axes import merged_axes
from hearthd.models.dsl.iree_faults.powers import negative_powers
from hearthd.models.dsl.iree_faults.tensor_sets import TensorSets
from hearthd.models.dsl.iree_faults.updates import updated_argument, updated_before_read
from hearthd.models.dsl.mlir.chains.addresses import ChainDispatch
from hearthd.models.dsl.mlir.chains.chain import STATE, Chain
from hearthd.models.dsl.mlir.chains.schedule import schedule
from hearthd.models.dsl.mlir.executables import Executable, flat, passed
from hearthd.models.dsl.mlir.updates_beside_loops import refuse_updates_beside_loops
from hearthd.models.dsl.ops.creation import literal
from hearthd.models.dsl.ops.elementwise import COMPUTE_BARRIER, power
from hearthd.models.dsl.ops.record import Kernel, Loop, Lowering, integers
from hearthd.models.dsl.types import COMPILED, DslError, DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hearthd.models.dsl.mlir.chains.schedule import Item

_INDEX = TensorType((), DType.I32)

# A value's name and its type.
_Typed: TypeAlias = tuple[str, TensorType]


class Module(NamedTuple):
    """A module, and the C functions that it calls.

    text     StableHLO
    kernels  the functions by their files' names, sorted
    chains   C files that call several of them in one dispatch: their texts by their names
    """

    text: str
    kernels: tuple[str, ...]
    chains: Mapping[str, str]


def module_text(name: str, graphs: Sequence[Graph], parameter_scope: str) -> str:
    """The text of `module`."""
    return module(name, graphs, parameter_scope).text


def module(name: str, graphs: Sequence[Graph], parameter_scope: str) -> Module:
    """The module `name` with one function for each graph.

    Raises DslError when two graphs give one parameter different types, for an operand that nothing
    gives, for a dtype that is not compiled, and for a graph with a loop in which the compiler would
    overwrite what the loop reads.
    """
    graphs = [inlined(graph) for graph in graphs]
    parameters: dict[str, TensorType] = {}
    for graph in graphs:
        for key, tensor in graph.parameters.items():
            if parameters.setdefault(key, tensor.type) != tensor.type:
                raise DslError(f"{key} is {parameters[key]} and, in {graph.name}, {tensor.type}")
    lines = [f"module @{name} {{"]
    lines += [
        f'  util.global private @"{key}" = '
        f'#flow.parameter.named<"{parameter_scope}"::"{key}"> : {tensor_type.mlir}'
        for key, tensor_type in sorted(parameters.items())
    ]
    plans = [schedule(graph) for graph in graphs]
    called = dict.fromkeys(_executables(plans))
    for executable in called:
        lines += executable.text()
    for graph, plan in zip(graphs, plans, strict=True):
        refuse_updates_beside_loops(graph)
        lines += _function(graph, plan)
    return Module("\n".join([*lines, "}", ""]), _kernels(called), _chains(called))


def kernels(graphs: Sequence[Graph]) -> tuple[str, ...]:
    """The `kernels` of the module of these graphs."""
    return _kernels(_called(graphs))


def chains(graphs: Sequence[Graph]) -> Mapping[str, str]:
    """The `chains` of the module of these graphs."""
    return _chains(_called(graphs))


def _called(graphs: Sequence[Graph]) -> set[Executable | Chain]:
    return set(_executables([schedule(inlined(graph)) for graph in graphs]))


def _kernels(called: Iterable[Executable | Chain]) -> tuple[str, ...]:
    return tuple(sorted({name for call in called for name in call.functions}))


def _chains(called: Iterable[Executable | Chain]) -> Mapping[str, str]:
    return {call.name: call.c_text for call in called if isinstance(call, Chain)}


def _executables(plans: Iterable[Sequence[Item]]) -> Iterator[Executable | Chain]:
    for plan in plans:
        for item in plan:
            if isinstance(item, ChainDispatch):
                yield item.chain
                continue
            match _lowering(item):
                case Kernel() as kernel:
                    yield _executable(kernel, [x.type for x in item.inputs], item.type)
                case Loop() as loop:
                    yield from _executables([loop.body.nodes])


def _lowering(node: Tensor) -> Lowering | Loop | Kernel:
    assert isinstance(node.origin, Apply)
    types = tuple(source.type for source in node.inputs)
    lowering = node.origin.op.lower(types, node.type, node.origin.attrs)
    if isinstance(lowering, Loop):
        return replace(lowering, body=inlined(lowering.body))
    return negative_powers(node.type) if op_of(node) is power else lowering


def _function(graph: Graph, plan: Sequence[Item]) -> Iterator[str]:
    ids: dict[int, str] = {}
    storage = {argument: result for result, argument in graph.in_place.items()}
    arguments = []
    for i, tensor in enumerate(graph.inputs):
        _compiled(tensor)
        in_place = f" {{iree.abi.output = {storage[i]} : index}}" if i in storage else ""
        arguments.append(f"%arg{i}: {packed_booleans(tensor.type).mlir}{in_place}")
        ids[id(tensor)] = f"%arg{i}"
    results = ", ".join(tensor.type.mlir for tensor in graph.outputs)
    yield f"  func.func public @{graph.name}({', '.join(arguments)}) -> ({results}) {{"
    for i, tensor in enumerate(graph.inputs):
        if tensor.dtype is DType.BOOL:
            ids[id(tensor)] = f"%true{i}"
            yield from _boolean((ids[id(tensor)], tensor.type), f"%arg{i}")
    for i, (key, tensor) in enumerate(graph.parameters.items()):
        ids[id(tensor)] = f"%w{i}"
        yield f'    %w{i} = util.global.load @"{key}" : {tensor.type.mlir}'
    if any(isinstance(item, ChainDispatch) for item in plan):
        yield _constant("%state", 0, STATE)
    yield from _nodes(graph, plan, "%v", ids)
    returned = [_known(tensor, ids, graph.name) for tensor in graph.outputs]
    for i, tensor in enumerate(graph.outputs):
        if i not in graph.in_place and updated_argument(tensor, graph):
            copied = (f"%kept{i}", tensor.type)
            yield _operation(copied, "stablehlo.optimization_barrier", [(returned[i], tensor.type)])
            returned[i] = copied[0]
    yield f"    return {', '.join(returned)} : {results}"
    yield "  }"


def _boolean(result: _Typed, operand: str) -> Iterator[str]:
    """A boolean argument out of its bytes."""
    name, tensor_type = result
    zero = (f"{name}zero", packed_booleans(tensor_type))
    yield _constant(zero[0], 0, zero[1])
    unequal = "comparison_direction = #stablehlo<comparison_direction NE>"
    yield _operation(result, "stablehlo.compare", [(operand, zero[1]), zero], f" <{{{unequal}}}>")


def _nodes(graph: Graph, plan: Sequence[Item], prefix: str, ids: dict[int, str]) -> Iterator[str]:
    """The lines of a graph's nodes; `ids` has the names of their inputs, and gets theirs."""
    sets, readers, state = TensorSets(graph), readers_of(graph), "%state"
    positions = {id(node): i for i, node in enumerate(graph.nodes)}
    for node in plan:
        if isinstance(node, ChainDispatch):
            name = f"{prefix}{positions[id(node.results[0][0])]}"
            operands = [(_known(source, ids, "a chain"), source.type) for source in node.inputs]
            yield from _chain(name, node, operands, state, ids)
            state = f"{name}#{len(node.chain.in_place)}"
            continue
        assert isinstance(node.origin, Apply)
        _compiled(node)
        lowering = _lowering(node)
        node_name = f"{prefix}{positions[id(node)]}"
        reader = f"{node.origin.op.name} in {graph.name}"
        operands = [(_known(source, ids, reader), source.type) for source in node.inputs]
        if isinstance(lowering, Loop):
            ids[id(node)] = f"{node_name}#{2 if lowering.stacked else 1}"
            yield from _loop(node_name, lowering, operands, node.type)
        elif safe := merged_axes(node) or updated_before_read(node, readers):
            names = zip(safe.inputs, operands, strict=True)
            inside = {id(tensor): name for tensor, (name, _) in names}
            yield from _nodes(safe, safe.nodes, f"{node_name}m", inside)
            ids[id(node)] = _known(safe.outputs[0], inside, reader)
        elif isinstance(lowering, Kernel):
            ids[id(node)] = node_name
            yield from _kernel(node_name, lowering, operands, node.type)
        else:
            ids[id(node)] = node_name
            yield from _node(node_name, lowering, node, operands, sets)


def _compiled(tensor: Tensor) -> None:
    if tensor.dtype not in COMPILED:
        raise DslError(f"{tensor}: {tensor.dtype.label} is not compiled")


def _known(tensor: Tensor, ids: Mapping[int, str], reader: str) -> str:
    """The name of a tensor in the module; raises DslError for one that is not defined yet."""
    if id(tensor) not in ids:
        raise DslError(f"{reader}: {tensor} is missing")
    return ids[id(tensor)]


def _node(
    name: str, lowering: Lowering, node: Tensor, operands: list[_Typed], sets: TensorSets
) -> Iterator[str]:
    result, has_barrier = node.type, is_behind_barrier(node)
    scalar = TensorType((), result.dtype)
    for i, value in enumerate(lowering.scalars):
        operands.append((f"{name}c{i}", scalar))
        yield _constant(f"{name}c{i}", value, scalar)
    computed = (name, result)
    if lowering.in_f32:
        computed = (f"{name}r", result.with_dtype(DType.F32))
        for i, before in enumerate(list(operands)):
            operands[i] = (f"{name}w{i}", before[1].with_dtype(DType.F32))
            yield _operation(operands[i], "stablehlo.convert", [before])
    for i in operands_behind_barriers(node, sets):
        before = operands[i]
        operands[i] = (f"{name}b{i}", before[1])
        yield _operation(operands[i], COMPUTE_BARRIER, [before])
    if lowering.into is not None:
        # Filled and not a constant: the compiler would evaluate a constant of any size.
        operands.append((f"{name}f", result))
        scalar_type, number = result.dtype.mlir, literal(lowering.into, result.dtype)
        yield f"    {name}e = tensor.empty() : {result.mlir}"
        yield f"    {name}z = arith.constant {number} : {scalar_type}"
        yield (
            f"    {name}f = linalg.fill ins({name}z : {scalar_type}) outs({name}e : {result.mlir})"
            f" -> {result.mlir}"
        )
    attributes = f" <{{{lowering.attributes}}}>" if lowering.attributes else ""
    region = f" ({{ {lowering.region} }})" if lowering.region else ""
    hints = f" {{{lowering.hints}}}" if lowering.hints else ""
    inside = f"{attributes}{region}{hints}"
    if has_barrier:
        computed = (f"{name}s", result)
    yield _operation(computed, lowering.operation, operands, inside)
    if has_barrier:
        yield _operation((name, result), COMPUTE_BARRIER, [computed])
    if lowering.in_f32:
        yield _operation((name, result), "stablehlo.convert", [computed])


def _kernel(
    node_name: str, kernel: Kernel, operands: list[_Typed], result: TensorType
) -> Iterator[str]:
    called = _executable(kernel, [tensor_type for _, tensor_type in operands], result)
    names: list[str] = []
    yield from _taken(node_name, operands, called.inputs, names)
    if called.result == result:
        yield f"    {node_name} = {called.dispatch(names)}"
    else:
        yield f"    {node_name}flat = {called.dispatch(names)}"
        yield _operation(
            (node_name, result), "stablehlo.reshape", [(f"{node_name}flat", called.result)]
        )


def _taken(
    node_name: str, operands: list[_Typed], taken: Iterable[TensorType], names: list[str]
) -> Iterator[str]:
    """Operands as executables take them; `names` gets their names."""
    for i, ((name, tensor_type), wanted) in enumerate(zip(operands, taken, strict=True)):
        if wanted != tensor_type:
            flat_name = f"{node_name}in{i}"
            yield _operation((flat_name, wanted), "stablehlo.reshape", [(name, tensor_type)])
            name = flat_name
        if passed(wanted) != wanted.mlir:
            bits = f"{node_name}bits{i}"
            yield f"    {bits} = flow.tensor.bitcast {name} : {wanted.mlir} -> {passed(wanted)}"
            name = bits
        names.append(name)


def _chain(
    name: str, dispatch: ChainDispatch, operands: list[_Typed], state: str, ids: dict[int, str]
) -> Iterator[str]:
    """A chain, and a tensor for each of its results."""
    chain, names = dispatch.chain, list[str]()
    yield from _taken(name, operands, chain.inputs, names)
    yield f"    {name}:{len(chain.in_place) + 2} = {chain.dispatch(names, state)}"
    for i, (node, address) in enumerate(dispatch.results):
        ids[id(node)] = f"{name}r{i}"
        if address.argument is None:
            result = (f"{name}p{i}", chain.results.with_shape(node.type.size))
            bounds = f"[{address.offset}:{address.offset + node.type.size}]"
            yield (
                f"    {result[0]} = stablehlo.slice {name}#{len(chain.in_place) + 1} {bounds}"
                f" : ({chain.results.mlir}) -> {result[1].mlir}"
            )
        else:
            written = chain.in_place.index(address.argument)
            result = (f"{name}#{written}", chain.inputs[address.argument])
        yield _operation((ids[id(node)], node.type), "stablehlo.reshape", [result])


def _executable(kernel: Kernel, inputs: Iterable[TensorType], result: TensorType) -> Executable:
    return Executable(kernel=kernel, inputs=tuple(map(flat, inputs)), result=flat(result))


def _loop(node_name: str, loop: Loop, operands: list[_Typed], result: TensorType) -> Iterator[str]:
    """A loop that carries a counter, the state and, if stacked, the rows that are written so far.

    Its other operands are read from outside, so that they are not carried around.
    """
    initial, *others = operands
    zero, step, count = (f"{node_name}{name}" for name in ("zero", "one", "count"))
    for name, value in ((zero, 0), (step, 1), (count, loop.steps)):
        yield _constant(name, value, _INDEX)
    starts = [(zero, _INDEX), initial]
    carried = [(f"{node_name}step", _INDEX), (f"{node_name}state", initial[1])]
    if loop.stacked:
        yield f"    {node_name}empty = tensor.empty() : {result.mlir}"
        starts.append((f"{node_name}empty", result))
        carried.append((f"{node_name}rows", result))
    names, types = _listed(starts)
    entry = (
        f"    ^bb0({', '.join(f'{name}: {tensor_type.mlir}' for name, tensor_type in carried)}):"
    )
    yield f'    {node_name}:{len(carried)} = "stablehlo.while"({names}) ({{'
    yield entry
    less = "comparison_direction = #stablehlo<comparison_direction LT>"
    more = (f"{node_name}more", TensorType((), DType.BOOL))
    yield _operation(more, "stablehlo.compare", [carried[0], (count, _INDEX)], f" <{{{less}}}>")
    yield _terminator([more])
    yield "    }, {"
    yield entry
    yield from _step(node_name, loop, carried, others)
    yield f"    }}) : ({types}) -> ({types})"


def _step(node_name: str, loop: Loop, carried: list[_Typed], others: list[_Typed]) -> Iterator[str]:
    """The body: read a row of each sequence, compute the next state, keep it as a row."""
    step, state, *rows = carried
    (zero, unit, at) = ((f"{node_name}{name}", _INDEX) for name in ("zero", "one", "at"))
    if loop.reverse:
        last = (f"{node_name}last", _INDEX)
        yield _constant(last[0], loop.steps - 1, _INDEX)
        yield _operation(at, "stablehlo.subtract", [last, step])
    else:
        at = step
    ids = {id(loop.body.inputs[0]): state[0]}
    for i, (tensor, operand) in enumerate(zip(loop.body.inputs[1:], others, strict=True)):
        ids[id(tensor)] = operand[0]
        if i < loop.sequences:
            row = (f"{node_name}row{i}", operand[1].with_shape(1, *tensor.shape))
            start = [at, *[zero] * tensor.type.rank]
            sizes = f" <{{slice_sizes = {integers(row[1].shape)}}}>"
            yield _operation(row, "stablehlo.dynamic_slice", [operand, *start], sizes)
            ids[id(tensor)] = f"{node_name}read{i}"
            yield _operation((ids[id(tensor)], tensor.type), "stablehlo.reshape", [row])
    yield from _nodes(loop.body, loop.body.nodes, f"{node_name}b", ids)
    (output,) = loop.body.outputs
    results = [(f"{node_name}next", _INDEX), (_known(output, ids, loop.body.name), state[1])]
    yield _operation(results[0], "stablehlo.add", [step, unit])
    for before in rows:
        row = (f"{node_name}row", state[1].with_shape(1, *state[1].shape))
        yield _operation(row, "stablehlo.reshape", [results[1]])
        results.append((f"{node_name}written", before[1]))
        start = [at, *[zero] * state[1].rank]
        yield _operation(results[2], "stablehlo.dynamic_update_slice", [before, row, *start])
    yield _terminator(results)


def _operation(result: _Typed, operation: str, operands: Sequence[_Typed], inside: str = "") -> str:
    """One operation in the generic form; `inside` are its attributes and regions."""
    names, types = _listed(operands)
    return f'    {result[0]} = "{operation}"({names}){inside} : ({types}) -> {result[1].mlir}'


def _terminator(results: Sequence[_Typed]) -> str:
    names, types = _listed(results)
    return f'    "stablehlo.return"({names}) : ({types}) -> ()'


def _constant(name: str, value: float, tensor_type: TensorType) -> str:
    number = literal(value, tensor_type.dtype)
    return f"    {name} = stablehlo.constant dense<{number}> : {tensor_type.mlir}"


def _listed(values: Sequence[_Typed]) -> tuple[str, str]:
    """The names and the types, each separated by commas."""
    return ", ".join(name for name, _ in values), ", ".join(
        tensor_type.mlir for _, tensor_type in values
    )
