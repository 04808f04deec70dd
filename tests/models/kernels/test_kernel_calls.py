"""The kernels with extreme shapes and values, and whether a kernel that is wrong would be found."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import resource
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.baker.compiler.kernel_objects import PACKAGE
from hearthd.models.dsl.composite import Fused
from hearthd.models.dsl.ops import REGISTRY
from tests.models.kernels.kernel_library import SOURCES, NotBuilt
from tools.fuzz.guided.coverage_inputs import kept_calls
from tools.fuzz.guided.kernel_calls import MAKERS, call_of, run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.models.kernels.kernel_library import LoadedKernels


def compute_calls(compute: Callable[[bytes], None], count: int = 12) -> None:
    """Compute `count` calls by each maker, and at least one of every op with a kernel.

    Calls for which `compute` raises NotBuilt do not count.
    """
    ops = set()
    for maker in range(len(MAKERS)):
        seeds = iter(range(40 * count))
        for _ in range(count):
            ops.add(_compute_next(compute, maker, seeds))
    assert ops == {name for name, op in REGISTRY.items() if isinstance(op, Fused)}


def _compute_next(compute: Callable[[bytes], None], maker: int, seeds: Iterator[int]) -> str:
    """Compute the maker's next call whose kernel is built; return its op."""
    for seed in seeds:
        data = bytes([maker]) + Random(seed).randbytes(24)
        with suppress(NotBuilt):
            compute(data)
            return call_of(data).op
    raise AssertionError(f"no kernel of maker {maker} is built")


def test_a_call_has_the_same_bits_on_other_memory_and_in_a_row_alone(
    kernels: LoadedKernels,
) -> None:
    compute_calls(partial(run, kernels))


def test_calls_of_the_corpus_have_the_same_bits(kernels: LoadedKernels) -> None:
    for line in kept_calls().read_text("ascii").splitlines():
        with suppress(NotBuilt):
            run(kernels, bytes.fromhex(line))


# --- what the calls find

_RESIDUAL_NORM = bytes([4])


class _Wrong:
    """A kernel that writes one float at a distance from the end of its result, (2, 1, 16) f32."""

    def __init__(self, distance: int) -> None:
        self._distance = distance

    def function(self, _name: str) -> Callable[..., int]:
        def write(*arguments: Any) -> int:
            out, offset = (argument.value for argument in arguments[8:10])
            at = out + 4 * (offset + 32 + self._distance)
            ctypes.c_float.from_address(at).value = 1.0
            return 0

        return write


def test_a_result_that_is_not_written_as_a_whole_is_found() -> None:
    assert call_of(_RESIDUAL_NORM).op == "residual_norm"
    with pytest.raises(AssertionError, match="results of one call differ"):
        run(_Wrong(-1), _RESIDUAL_NORM)


def test_a_write_before_the_result_is_found() -> None:
    with pytest.raises(AssertionError, match="wrote before its result"):
        run(_Wrong(-33), _RESIDUAL_NORM)


def test_a_write_beyond_the_result_ends_the_process() -> None:
    child = os.fork()
    if child:
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGSEGV
        return
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    run(_Wrong(0), _RESIDUAL_NORM)
    os._exit(0)


# --- what the calls have found, under UBSan of the baker's clang

_NAN_TERMS = """
#include <stddef.h>
#include <stdint.h>
int hearth_lora_up_i8(const float *, size_t, const int32_t *, size_t, const float *, size_t,
                      const int8_t *, size_t, const _Float16 *, size_t, float *, size_t, size_t,
                      size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t, size_t,
                      size_t, size_t, size_t, size_t);
int main(void) {
    static float terms[4], out[16], scale = 1;
    static int8_t b[64];
    static _Float16 b_scale[16];
    int32_t chosen = 1;
    terms[2] = __builtin_nanf("");
    return hearth_lora_up_i8(terms, 0, &chosen, 0, &scale, 0, b, 0, b_scale, 0, out, 0, 0, 1, 1, 1,
                             1, 16, 4, 0, 4, 1, 16, 0, 0, 0);
}
"""


def test_terms_that_are_not_numbers_are_not_converted_to_integers(tmp_path: Path) -> None:
    program, main = tmp_path / "program", tmp_path / "main.c"
    main.write_text(_NAN_TERMS)
    sanitize = ("-fsanitize=float-cast-overflow", "-fsanitize-trap=float-cast-overflow")
    command = [sys.executable, "-m", PACKAGE, "cc", "-O1", "-Wno-psabi", *sanitize]
    files = [str(main), f"-I{SOURCES}", str(SOURCES / "lora/lora_up_i8.c")]
    subprocess.run([*command, "-o", str(program), *files], check=True)
    assert subprocess.run([program], check=False).returncode == 0
