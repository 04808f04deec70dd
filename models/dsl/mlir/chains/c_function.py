"""Write a chain as a C function: threads take tickets, and each ticket is a workgroup of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.models.dsl.mlir.chains.chain import Address, Call, Chain
    from hearthd.models.dsl.ops.record import Kernel

# The workgroups of a chain, and so the largest number of threads that run it.
WORKGROUPS = 16
# Of a call with more than _MANY_WORKGROUPS, such as one for each row of a prefill, a thread takes
# several at a time: to take one and to count it takes as long as to normalize a row.
_MANY_WORKGROUPS, _SEVERAL = 64, 4


def c_lines(chain: Chain, name: str) -> Iterator[str]:
    """The lines of the C file of a chain; its function has `hearth_` in front of `name`."""
    yield '#include "chain.h"'
    for function in chain.functions:
        yield _declaration(next(x for x in chain.calls if x.kernel.function == function))
    arguments = ", ".join(f"char *a{i}, size_t a{i}_at" for i in chain.arguments)
    yield f"int hearth_{name}({arguments},"
    yield "    int32_t *state, size_t state_at, float *results, size_t results_at) {"
    yield "    Chain *chain = (Chain *)(state + state_at);"
    yield "    (void)results, (void)results_at;"  # where all results are in place
    yield "    enter_chain(chain);"
    yield "    for (;;) {"
    yield "        size_t ticket = next_ticket(chain), count;"
    ticket = 0
    for level in chain.levels:
        level_ticket = ticket
        for call in level:
            yield f"        if (ticket < {ticket + call.kernel.workgroups}) {{"
            yield from _taking_lines(call.kernel, ticket)
            if level_ticket:
                for source in _private_sources(chain, call, ticket):
                    yield f"            fetch_until(chain, {level_ticket}, {source});"
                yield f"            wait_for(chain, {level_ticket});"
            yield from _call_lines(call, ticket)
            yield "            tickets_done(chain, count);"
            yield "            continue;"
            yield "        }"
            ticket += call.kernel.workgroups
    yield "        break;"
    yield "    }"
    yield f"    leave_chain(chain, {WORKGROUPS});"
    yield from ("    return 0;", "}", "")


def _declaration(call: Call) -> str:
    kernel = call.kernel
    pointers = ["void *, size_t"] * (len(call.inputs) + (0 if kernel.in_place else 1))
    sizes = ["size_t"] * (1 + len(kernel.sizes))
    scalars = ["float"] * len(kernel.scalars)
    return f"int hearth_{kernel.function}({', '.join([*pointers, *sizes, *scalars])});"


def _taking_lines(kernel: Kernel, first: int) -> Iterator[str]:
    """Take the next tickets of a call, or look again if another thread took them."""
    workgroups = kernel.workgroups
    several = _SEVERAL if workgroups > _MANY_WORKGROUPS else 1
    count = f"to_join(chain, {workgroups})" if kernel.joins else str(several)
    yield f"            count = take_tickets(chain, ticket, {first}, {workgroups}, {count});"
    yield "            if (!count) continue;"


def _private_sources(chain: Chain, call: Call, first: int) -> Iterator[str]:
    """The start of each array that only these tickets read, and how many bytes of it they read."""
    for address, elements in zip(call.inputs, call.kernel.private, strict=False):
        if elements and address.argument is not None:
            width = chain.inputs[address.argument].dtype.numpy.itemsize
            offset = f"{address.offset} + (ticket - {first}) * {elements}"
            pointer = f"a{address.argument} + (a{address.argument}_at + {offset}) * {width}"
            yield f"{pointer}, count * {elements * width}"


def _call_lines(call: Call, first: int) -> Iterator[str]:
    """The call of a kernel for the workgroups of the tickets: one, or one for each."""
    kernel = call.kernel
    operands = call.inputs[1:] if kernel.in_place else call.inputs
    pointers = ", ".join(map(_pointer, (*operands, call.result)))
    sizes = list(map(str, kernel.sizes))
    scalars = [f"{float(np.float32(scalar)).hex()}f" for scalar in kernel.scalars]
    if kernel.joins:
        sizes[0] = f"count * {sizes[0]}"
        arguments = ", ".join([pointers, f"(ticket - {first}) / count", *sizes, *scalars])
        yield f"            hearth_{kernel.function}({arguments});"
    else:
        arguments = ", ".join([pointers, f"ticket - {first} + i", *sizes, *scalars])
        yield "            for (size_t i = 0; i < count; i++)"
        yield f"                hearth_{kernel.function}({arguments});"


def _pointer(address: Address) -> str:
    name = "results" if address.argument is None else f"a{address.argument}"
    return f"{name}, {name}_at + {address.offset}"
