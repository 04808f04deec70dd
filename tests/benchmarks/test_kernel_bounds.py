"""The loop of a kernel that benchmarks.kernel_bounds simulates."""

from __future__ import annotations

import pytest

from benchmarks.kernel_bounds import Bound, BoundsError, group_loop, precisions

INNER = "\tsmull\tv0.8h, v1.8b, v2.8b\n\tsmlal2\tv0.8h, v1.16b, v2.16b\n"
NESTED = f"""\
f:
.LBB0_1:
\tldr\tq1, [x0]
.LBB0_2:                                // %for.body
{INNER * 16}\tsubs\tx1, x1, #1
\tb.ne\t.LBB0_2
\tsadalp\tv5.4s, v0.8h
\tcbnz\tx2, .LBB0_1
\tret
"""


def test_an_inner_loop_runs_as_often_as_a_group_needs() -> None:
    loop = group_loop(NESTED)
    assert loop[0] == "ldr\tq1, [x0]"
    assert loop[-1] == "sadalp\tv5.4s, v0.8h"
    assert len(loop) == 2 + 4 * 33


def test_loops_of_more_rows_are_not_taken() -> None:
    rows = "\tvpdpbusd\t(%rax), %zmm1, %zmm2\n"
    text = f".LBB0_3:\n{rows * 32}\tjne\t.LBB0_3\n.LBB0_4:\n{rows * 16}\tjb\t.LBB0_4\n"
    assert len(group_loop(text)) == 16
    with pytest.raises(BoundsError, match="no loop"):
        group_loop(text.replace(rows * 16, rows * 15))


def test_bytes_of_a_group_are_those_of_its_arrays() -> None:
    assert {one.name: one.group_bytes for one in precisions()} == {
        "int4-g32": 288,
        "int5-g32": 352,
        "int6-g16": 448,
        "int8-g32": 544,
    }


@pytest.mark.parametrize(("computed", "limit"), [(13.0, "memory"), (12.0, "computation")])
def test_the_slower_of_memory_and_cores_is_the_limit(computed: float, limit: str) -> None:
    bound = Bound(board="b", precision="p", cycles=1, computed=computed, memory=12.8)
    assert bound.limit == limit
