"""Our own kernels under every instruction set that this machine has, against the formulas in f64.

They are called directly, built by the baker's own flags; that the compiler calls them rightly is
seen in test_ops.py. Those for ARM are in test_emulated_kernels.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.compiler.targets import TARGET_NAMES, find_target
from hearthd.models.dsl.kernel_sources import KERNELS
from hearthd.models.dsl.ops import REGISTRY
from hearthd.models.dsl.ops.record import Kernel
from hearthd.models.dsl.types import DType, TensorType
from tests.models.kernels.attention_cases import FORMS, KEYS, OF_IMAGES, SCALE, attended, cache_of
from tests.models.kernels.emulated_kernels import EMULATED
from tests.models.kernels.kernel_library import TARGETS, build_library

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tests.models.kernels.kernel_library import BuiltKernels, Kernels

    Array = NDArray[Any]


ARM = [target for target, _ in EMULATED.values()]


def test_a_program_says_which_instructions_its_kernels_use(built: BuiltKernels) -> None:
    assert all(kernels.instructions == name for name, kernels in built.items())


# --- cached_attention


def attention(
    kernels: Kernels, query: Array, key: Array, value: Array, start: int, window: int
) -> Array:
    inputs = (query, key, value, np.array([start], np.int32))
    out = np.full_like(query, np.nan)
    return kernels("cached_attention", inputs, out, keys=KEYS, window=window, scale=SCALE)


@pytest.mark.parametrize("name", FORMS)
def test_attention_is_the_softmax_over_the_keys_that_are_seen(kernels: Kernels, name: str) -> None:
    query, key, value, start, window = cache_of(name)
    actual = attention(kernels, query, key, value, start, window)
    np.testing.assert_allclose(actual, attended(query, key, value, start, window), atol=1e-5)


@pytest.mark.parametrize("name", FORMS)
def test_a_token_attends_with_the_same_bits_alone(kernels: Kernels, name: str) -> None:
    query, key, value, start, window = cache_of(name)
    together = attention(kernels, query, key, value, start, window)
    for i in range(len(query)):
        alone = attention(kernels, query[i : i + 1].copy(), key, value, start + i, window)
        assert np.array_equal(alone[0], together[i])


@pytest.mark.parametrize("name", FORMS)
def test_keys_that_are_not_seen_have_no_effect(kernels: Kernels, name: str) -> None:
    query, key, value, start, window = cache_of(name)
    actual = attention(kernels, query, key, value, start, window)
    newest = start + len(query) - 1
    seen = {p % len(key) for p in range(max(0, start - window + 1), newest + 1)}
    for row in set(range(len(key))) - seen:
        key[row] = value[row] = np.finfo(key.dtype).max / 2
    assert np.array_equal(attention(kernels, query, key, value, start, window), actual)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("tokens", "rows", "padding"),
    [
        (1, 70, 0),
        (3, 5, 0),
        (15, 64, 0),
        (40, 1, 0),
        (40, 150, 0),
        (40, 70, 80),
        (150, 1, 149),
        (17, 9, 8),
    ],
)
def test_full_attention_is_the_softmax_over_every_row(
    kernels: Kernels, tokens: int, rows: int, padding: int, dtype: type
) -> None:
    """By formulas: few tokens and many, with rows that do not fill blocks."""
    rng = np.random.default_rng(tokens)
    query = rng.standard_normal((tokens, 6, 64)).astype(np.float32)
    key, value = rng.standard_normal((2, rows, 3 * 64)).astype(dtype)
    unseen: Array = np.full((padding, 3 * 64), np.nan, dtype)
    cache = (np.concatenate([x, unseen]) for x in (key, value))
    inputs = (query, *cache, np.array([rows - 1], np.int32))
    options = {"scale": SCALE, "counted": padding > 0}
    actual = kernels("full_attention", inputs, np.full_like(query, np.nan), **options)
    keys, values = (
        np.repeat(x.astype(np.float64).reshape(rows, 3, 64), 2, axis=1) for x in (key, value)
    )
    scores = SCALE * np.einsum("thd,rhd->thr", query.astype(np.float64), keys)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    # Of numbers that are sums of two bf16: half a unit in the last place of the smaller one, and
    # the product of both smaller ones.
    rounding = 3 * 2.0**-17 if kernels.instructions == "amx" and tokens >= 16 else 0.0
    terms = SCALE * np.einsum("thd,rhd->thr", np.abs(query).astype(np.float64), np.abs(keys))
    relative = rounding * (1 + 2 * terms.max(axis=2, keepdims=True))
    error = 1e-5 + relative * np.einsum("thr,rhd->thd", weights, np.abs(values))
    assert (np.abs(actual - np.einsum("thr,rhd->thd", weights, values)) <= error).all()


@pytest.mark.parametrize("padding", [0, 9])
@pytest.mark.parametrize("name", OF_IMAGES)
def test_rows_of_an_image_see_the_later_ones(kernels: Kernels, name: str, padding: int) -> None:
    query, key, value, start, window = cache_of(name)
    rows = len(query) - padding
    inputs = (query, key, value, np.array([start, start + rows], np.int32))
    options = {"keys": KEYS, "window": window, "scale": SCALE}
    actual = kernels("cached_attention", inputs, np.full_like(query, np.nan), **options)
    expected = attended(query, key, value, start, window, block=rows)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


def queries_of_workgroup(query: Array, key: Array) -> int:
    types = [TensorType(x.shape, DType.F32) for x in (query, key, key)]
    start = TensorType((1,), DType.I32)
    kernel = REGISTRY["cached_attention"].lower(
        (*types, start), types[0], {"keys": KEYS, "window": 1, "scale": SCALE}
    )
    assert isinstance(kernel, Kernel)
    return 0 if kernel.scratch else kernel.sizes[-1]


def test_workgroups_of_prefills_alone_have_many_queries() -> None:
    for name in FORMS:
        query, key, *_ = cache_of(name)
        assert (queries_of_workgroup(query, key) >= 16) == ("prefill" in name), name


@pytest.mark.parametrize("first", [15, 16, 17])
def test_a_prefill_in_two_parts_has_the_same_bits(kernels: Kernels, first: int) -> None:
    query, key, value, start, window = cache_of("a prefill")
    together = attention(kernels, query, key, value, start, window)
    assert queries_of_workgroup(query[:15], key) < queries_of_workgroup(query[:16], key)
    parts = [
        attention(kernels, query[:first].copy(), key, value, start, window),
        attention(kernels, query[first:].copy(), key, value, start + first, window),
    ]
    assert np.array_equal(np.concatenate(parts), together)


def test_large_scores_neither_overflow_nor_vanish(kernels: Kernels) -> None:
    query, key, value, start, window = cache_of("one token, one group")
    query *= 300
    actual = attention(kernels, query, key, value, start, window)
    np.testing.assert_allclose(actual, attended(query, key, value, start, window), atol=2e-3)


# --- all


# The other targets have the instruction sets above or of test_emulated_kernels.py, and are linked
# in the same way. `x86_64-v4` has AVX-512 without its integer products.
REMAINING = sorted({*TARGET_NAMES} - {"host", *TARGETS.values(), *ARM})


@pytest.mark.parametrize("name", REMAINING)
@pytest.mark.nightly
def test_for_every_target_they_need_nothing_else(name: str, tmp_path: Path) -> None:
    target = find_target(name)
    machine = target.triple.partition("-")[0]
    build_library(machine, target.cpu.replace("-", "_"), tmp_path / "all.so", list(KERNELS))
    library = (tmp_path / "all.so").read_bytes()
    assert all(f"hearth_{kernel}\0".encode() in library for kernel in KERNELS)


def test_every_instruction_set_gives_the_same_bits(built: BuiltKernels) -> None:
    for cache in (cache_of(name) for name in FORMS if "wrap" in name):
        first, *others = (attention(kernels, *cache) for kernels in built.values())
        assert all(np.array_equal(first, other) for other in others)
