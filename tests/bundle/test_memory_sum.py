"""The memory sum: what is admitted always fits the limit."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.bundle import (
    AUTO_CONTEXT_STEP,
    MIN_AUTO_CONTEXT,
    EntryPoint,
    Footprint,
    Memory,
    NotABundle,
    NotEnoughMemory,
    longest_context,
    megabytes,
)
from tests.bundle.example_manifests import EXAMPLE

SIZES = st.integers(0, 10**10)
MEMORIES = st.builds(
    Memory,
    vocab_size=st.integers(1, 300_000),
    context=st.integers(1, 200_000),
    weights=SIZES,
    slot=SIZES,
    adapters=SIZES,
    block=st.integers(1, 10**8),
    steps=st.dictionaries(st.integers(1, 16), SIZES, min_size=1),
)
SLOTS = st.integers(1, 20)
LIMITS = st.integers(0, 10**12)


@given(MEMORIES, SLOTS, SIZES)
def test_the_parts_add_up_to_the_sum(memory: Memory, slots: int, cache: int) -> None:
    parts = dict(memory.parts(slots, cache))
    assert sum(parts.values()) == memory.needed(slots, cache)
    assert parts["slots"] == slots * memory.slot
    assert parts["prefix cache"] == cache
    assert parts["weights"] == memory.weights


@given(MEMORIES, SLOTS, SIZES, st.integers(0, 5), SIZES)
def test_a_larger_part_makes_a_larger_sum(
    memory: Memory, slots: int, cache: int, more: int, bytes_: int
) -> None:
    needed = memory.needed(slots, cache)
    assert memory.needed(slots + more, cache) >= needed
    assert memory.needed(slots, cache + bytes_) == needed + bytes_
    assert replace(memory, weights=memory.weights + bytes_).needed(slots, cache) == needed + bytes_


@given(MEMORIES, LIMITS, SLOTS, SIZES)
def test_admitted_slots_fit_and_one_more_does_not(
    memory: Memory, limit: int, slots: int, cache: int
) -> None:
    if memory.needed(1) > limit:
        with pytest.raises(NotEnoughMemory, match="is not enough: one slot needs"):
            memory.admit(limit, slots=slots, prefix_cache=cache)
        return
    admitted = memory.admit(limit, slots=slots, prefix_cache=cache)
    assert 1 <= admitted.slots <= slots
    assert memory.needed(admitted.slots, admitted.prefix_cache) <= limit
    assert admitted.slots == slots or memory.needed(admitted.slots + 1) > limit
    assert admitted.prefix_cache == 0 or memory.block <= admitted.prefix_cache <= cache


@given(MEMORIES, SLOTS, SIZES)
def test_a_limit_of_exactly_the_sum_admits_everything(
    memory: Memory, slots: int, cache: int
) -> None:
    admitted = memory.admit(memory.needed(slots, cache), slots=slots, prefix_cache=cache)
    assert admitted.slots == slots
    assert admitted.prefix_cache == (cache if cache >= memory.block else 0)


@given(MEMORIES, LIMITS, LIMITS)
def test_a_higher_limit_admits_no_less(memory: Memory, first: int, second: int) -> None:
    low, high = sorted((first, second))
    if memory.needed(1) <= low:
        slots = [memory.admit(n, slots=20, prefix_cache=0).slots for n in (low, high)]
        assert slots == sorted(slots)


@given(
    MEMORIES, st.integers(1, 8), st.integers(1, 10**5), st.integers(64, 200_000), st.floats(0, 1.2)
)
def test_the_longest_context_fits_with_its_prefix_cache_and_no_longer_one_does(
    memory: Memory, slots: int, row: int, longest: int, share: float
) -> None:
    def memory_of(context: int) -> Memory:
        return replace(memory, context=context, slot=row * context, block=128 * row, chunk=128)

    def fits(context: int) -> bool:
        return memory_of(context).needed(slots, memory_of(context).context_blocks) <= limit

    middle = memory_of(int(share * longest))
    limit = middle.needed(slots, middle.context_blocks)
    context = longest_context(memory_of, limit, slots=slots, longest=longest)
    assert fits(context) or context == min(MIN_AUTO_CONTEXT, longest)
    if context == longest:
        return
    assert context % AUTO_CONTEXT_STEP == 0
    assert not fits(min(context + AUTO_CONTEXT_STEP, longest))


def test_the_default_prefix_cache_keeps_a_context() -> None:
    memory = Memory(vocab_size=1, context=1000, weights=0, slot=0, block=10**6, chunk=128, steps={})
    assert memory.context_blocks == 8 * 10**6
    assert memory.default_prefix_cache == 256 * 2**20
    assert replace(memory, context=128_000).default_prefix_cache == 1000 * 10**6


@given(MEMORIES, SLOTS, SIZES)
def test_the_formula_names_the_sum_and_every_part(memory: Memory, slots: int, cache: int) -> None:
    whole, _, parts = memory.formula(slots, cache).partition(" MB = ")
    assert whole == megabytes(memory.needed(slots, cache))
    words = re.findall(r"(?:^|\+ )([a-z ]+) ([\d,.]+)", parts)
    assert dict(words) == {name: megabytes(n) for name, n in memory.parts(slots, cache) if n}


def test_megabytes_are_rounded_up() -> None:
    assert [megabytes(size) for size in (0, 1, 100_000, 100_001, 1_234_500_000)] == [
        "0.0", "0.1", "0.1", "0.2", "1,234.5",
    ]  # fmt: skip


def test_a_token_misses_the_share_of_its_experts_that_memory_does_not_keep() -> None:
    weights = Footprint(laid_out=0, read=110, looked_up=0, calls={}, experts=100, token_experts=20)
    assert weights.resident == 30
    assert [weights.missed(memory) for memory in (0, 50, 100, 200)] == [20, 10, 0, 0]
    assert Footprint(laid_out=1, read=2, looked_up=0, calls={}).missed(0) == 0


@pytest.mark.parametrize(("experts", "token_experts"), [(11, 1), (1, 2)])
def test_experts_are_a_part_of_the_weights(experts: int, token_experts: int) -> None:
    with pytest.raises(NotABundle, match=r"footprint\.experts: got \d+, expected at least"):
        Footprint(
            laid_out=0, read=10, looked_up=0, calls={}, experts=experts, token_experts=token_experts
        )


@pytest.mark.parametrize(
    "name", ["laid_out", "read", "looked_up", "decode_1", "experts", "token_experts"]
)
def test_a_negative_size_is_named(name: str) -> None:
    sizes = {"laid_out": 1, "read": 1, "looked_up": 1, "decode_1": 1} | {name: -1}
    decode = sizes.pop("decode_1")
    with pytest.raises(NotABundle, match=rf"footprint\.{name}: got -1, expected a size"):
        Footprint(calls={"decode_1": decode}, expert_arrays=None, **sizes)


def test_arrays_have_experts() -> None:
    with pytest.raises(NotABundle, match=r"footprint\.expert_arrays\.w: got 0, expected a number"):
        Footprint(laid_out=0, read=0, looked_up=0, calls={}, expert_arrays={"w": 0})


def test_the_rows_of_the_largest_image_stay_in_memory() -> None:
    """Rows of Qwen3-VL 8B have four parts, so an image of 1,024 rows has 67 MB."""
    sees = EntryPoint(name="image", kind="image", batch=1, tokens=1024, keys=1024)
    assert EXAMPLE.image_grid is not None
    manifest = replace(
        EXAMPLE,
        config={"hidden": 4096},
        image_grid=replace(EXAMPLE.image_grid, parts=4),
        entry_points=(*EXAMPLE.entry_points, sees),
        footprint=replace(EXAMPLE.footprint, calls=EXAMPLE.footprint.calls | {"image": 0}),
    )
    row, chunk = 4 * 4 * 4096, 16
    assert manifest.memory.image_rows == manifest.image_row_memory == row * (1024 + chunk)
    assert manifest.memory.slot - EXAMPLE.memory.slot == row * (2 * 1024 + chunk)
    small = replace(manifest, config={"hidden": 8})
    assert small.image_row_memory == 16_000_000
    assert EXAMPLE.image_row_memory == EXAMPLE.memory.image_rows == 0
