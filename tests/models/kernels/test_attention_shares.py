"""Attention of few tokens, whose keys and widths are spread over workgroups."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.dsl.fused.cache_attention import cached_attention, int8_cache_attention
from hearthd.models.dsl.types import DType, TensorType
from tests.models.kernels.attention_cases import SCALE
from tests.models.kernels.integer_caches import quantized

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.dsl.ops.record import Kernel
    from tests.models.kernels.kernel_library import LoadedKernels

    Array = NDArray[Any]

DTYPES = (np.float32, np.float16, np.int8)
# tokens, heads, groups, width, rows, window; and positions of the first token
CALLS = {
    "one token, one group": ((1, 4, 1, 256, 300, None), (*range(0, 200, 7), 255, 256, 299)),
    "one token, wide heads": ((1, 4, 2, 512, 150, None), (0, 64, 149)),
    "one token, three groups": ((1, 9, 3, 64, 500, None), (0, 63, 64, 200, 450, 499)),
    "a window in a ring": ((1, 4, 1, 128, 150, 130), (*range(120, 290, 13), 1000)),
    "four tokens in a ring": ((4, 6, 2, 64, 220, 200), (0, 61, 150, 199, 217, 430, 437)),
    "tokens with sets of their own": ((5, 7, 1, 64, 400, None), (0, 130, 395)),
}


def cache_of(shape: tuple[Any, ...], dtype: Any) -> list[Array]:
    """The query and the cache: keys, values and, of int8, their scales."""
    tokens, heads, groups, width, rows, _ = shape
    rng = np.random.default_rng(rows)
    query = rng.normal(size=(tokens, heads, width)).astype(np.float32)
    caches = rng.normal(size=(2, rows, groups * width))
    if dtype is not np.int8:
        return [query, *caches.astype(dtype)]
    pairs = [quantized(x.reshape(rows, groups, width)) for x in caches]
    return [query, *(integers for integers, _ in pairs), *(scales for _, scales in pairs)]


def lowered(shape: tuple[Any, ...], inputs: list[Array]) -> Kernel:
    types = [TensorType(x.shape, DType.of(x.dtype)) for x in inputs]
    attrs = {"keys": 2000 if shape[-1] else shape[-2], "window": shape[-1], "scale": SCALE}
    op = int8_cache_attention if inputs[1].dtype == np.int8 else cached_attention
    types.append(TensorType((1,), DType.I32))
    assert op.infer(tuple(types), attrs) == types[0], "the op takes these shapes"
    return op.lower(tuple(types), types[0], attrs)


def shared(kernel: Kernel, scores: int, slices: int) -> Kernel:
    """The kernel with as many workgroups for its scores and for the widths of its values."""
    assert kernel.scratch is not None
    first = kernel.scratch.kernel
    first = replace(first, sizes=(*first.sizes[:-1], scores), workgroups=scores)
    return replace(
        kernel,
        sizes=(*kernel.sizes[:-1], slices),
        workgroups=slices,
        scratch=replace(kernel.scratch, kernel=first),
    )


def as_a_prefill(kernel: Kernel) -> Kernel:
    """What attends the queries of a prompt, for the same tokens, with all queries of a head."""
    return replace(
        kernel,
        function=kernel.function.replace("mix", "many"),
        sizes=(*kernel.sizes[:-2], 0, 1, 16),  # no block, 1 head together, 16 queries
        workgroups=kernel.sizes[1],
        scratch=None,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_every_share_and_a_prefill_give_the_same_bits(
    kernels: LoadedKernels, name: str, dtype: Any
) -> None:
    shape, positions = CALLS[name]
    query, *cache = cache_of(shape, dtype)
    kernel = lowered(shape, [query, *cache])
    for position in positions:
        inputs = (query, *cache, np.array([position], np.int32))

        def result(one: Kernel, inputs: tuple[Array, ...] = inputs) -> Array:
            return kernels.computed(one, inputs, np.full_like(query, np.nan))

        expected = result(as_a_prefill(kernel))
        assert np.isfinite(expected).all()
        assert np.array_equal(result(kernel), expected), position
        for scores, slices in ((1, 1), (2, 3), (5, 2), (16, 8), (40, 16)):
            assert np.array_equal(result(shared(kernel, scores, slices)), expected), position


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [1, 16])
def test_a_longer_cache_changes_no_bit_and_its_rest_is_not_read(
    kernels: LoadedKernels, tokens: int, dtype: Any
) -> None:
    short = (tokens, 4, 1, 256, 300, None)
    query, *cache = cache_of(short, dtype)
    unread = {"f": np.nan, "i": 127}
    longer = [np.full((9000, x.shape[1]), unread[x.dtype.kind], x.dtype) for x in cache]
    for rows, few in zip(longer, cache, strict=True):
        rows[: len(few)] = few
    for position in (0, 100, 283):
        start, out = np.array([position], np.int32), np.full_like(query, np.nan)
        shorter, same = (
            kernels.computed(lowered(shape, [query, *buffers]), (query, *buffers, start), out)
            for shape, buffers in ((short, cache), ((*short[:4], 9000, None), longer))
        )
        assert np.isfinite(shorter).all()
        assert np.array_equal(shorter, same), position


def test_scores_are_spread_over_workgroups_and_their_memory_is_counted() -> None:
    shape, _ = CALLS["one token, one group"]
    kernel = lowered(shape, cache_of(shape, np.float16))
    assert kernel.workgroups == 4  # slices of 64 of the width
    assert kernel.scratch is not None
    assert kernel.scratch.kernel.workgroups == 8
    assert kernel.scratch.size == 4 * 304  # heads, keys rounded up to the lanes of a vector
    shape, _ = CALLS["a window in a ring"]
    windowed = lowered(shape, cache_of(shape, np.float16)).scratch
    assert windowed is not None
    assert windowed.size == 4 * 208  # the window may begin at the end of a block
