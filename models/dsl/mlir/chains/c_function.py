"""Write a chain as a C function: threads take tickets, and each ticket is part of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearthd.models.dsl.mlir.chains.chain import Address, Call, Chain

# The workgroups of a chain, and so the largest number of threads that run it.
WORKGROUPS = 16
# The most bytes of an array that a thread fetches while it waits: with 16 KB and with 256 KB, steps
# took as long.
_MAX_FETCHED = 1 << 16


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
    yield "    for (;;) {"
    yield "        size_t ticket = (size_t)take_ticket(chain);"
    ticket = 0
    for level in chain.levels:
        level_ticket = ticket
        for call in level:
            yield f"        if (ticket < {ticket + call.tickets}) {{"
            if level_ticket:
                for source in _private_sources(chain, call, ticket):
                    yield f"            fetch_until(chain, {level_ticket}, {source});"
                yield f"            wait_for(chain, {level_ticket});"
            yield from _call_lines(call, ticket)
            yield "            call_done(chain);"
            yield "            continue;"
            yield "        }"
            ticket += call.tickets
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


def _private_sources(chain: Chain, call: Call, first_ticket: int) -> Iterator[str]:
    """The start of each array that only this ticket reads, and how many bytes of it are fetched."""
    for address, count in zip(call.inputs, call.kernel.private, strict=False):
        if count and address.argument is not None:
            width = chain.inputs[address.argument].dtype.numpy.itemsize
            elements = count * call.ticket_workgroups
            offset = f"{address.offset} + (ticket - {first_ticket}) * {elements}"
            pointer = f"a{address.argument} + (a{address.argument}_at + {offset}) * {width}"
            yield f"{pointer}, {min(elements * width, _MAX_FETCHED)}"


def _call_lines(call: Call, first_ticket: int) -> Iterator[str]:
    """The loop that calls a kernel for each workgroup of a ticket."""
    kernel = call.kernel
    operands = call.inputs[1:] if kernel.in_place else call.inputs
    pointers = map(_pointer, (*operands, call.result))
    scalars = (f"{float(np.float32(scalar)).hex()}f" for scalar in kernel.scalars)
    arguments = ", ".join([*pointers, "i", *map(str, kernel.sizes), *scalars])
    start, count = f"(ticket - {first_ticket}) * {call.ticket_workgroups}", call.ticket_workgroups
    yield f"            for (size_t i = {start}; i < {start} + {count}; i++)"
    yield f"                hearth_{kernel.function}({arguments});"


def _pointer(address: Address) -> str:
    name = "results" if address.argument is None else f"a{address.argument}"
    return f"{name}, {name}_at + {address.offset}"
