"""Gemma 3 with random weights, small enough to compare every position with a plain forward."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearthd.models.dsl.functions import DECODE_ROWS
from hearthd.models.dsl.types import DslError
from tests.by_day import first_by_day
from tests.conftest import few
from tests.models.families.gemma3.gemma3_cases import (
    CONTEXT,
    GROUPED,
    OPTIONS,
    SOME,
    TINY,
    TOKENS,
    TOLERANCE,
    WINDOW,
    make_device,
)
from tests.models.families.gemma3.gemma3_reference import RIGHT, Mistakes, forward, hidden
from tests.models.unpacked import real_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hearthd.models.precision import KvCache
    from tests.models.numpy_device import Device

    Array = NDArray[Any]


@pytest.fixture(scope="module")
def device() -> Device:
    return make_device(TINY, padding=60)


@pytest.fixture(scope="module")
def decoded(device: Device) -> Array:
    return device.decoded(TOKENS)


# --- against a forward written independently


def test_decoding_equals_the_reference_at_every_position(device: Device, decoded: Array) -> None:
    np.testing.assert_allclose(
        decoded, forward(TINY, device.model_weights(), TOKENS), atol=TOLERANCE
    )


@pytest.mark.parametrize("sizes", [(8,), (3,), (1,), (5, 8, 2), (7, 3)], ids=str)
@pytest.mark.nightly
def test_prefill_in_any_chunks_gives_the_same_logits(
    device: Device, decoded: Array, sizes: tuple[int, ...]
) -> None:
    for position in range(0, len(TOKENS), 3 if sizes == (8,) else 13):
        actual = device.logits_after(TOKENS[: position + 1], sizes)
        np.testing.assert_allclose(actual, decoded[position], atol=TOLERANCE)


@pytest.mark.parametrize("sizes", [(8,), (1,), (5, 8, 2)], ids=str)
def test_embeddings_are_sums_of_hidden_states_in_any_chunks(
    device: Device, sizes: tuple[int, ...]
) -> None:
    states = hidden(TINY, device.model_weights(), TOKENS)
    caches, at = device.slot(), 0
    for turn in range(9):
        tokens = TOKENS[at : at + sizes[turn % len(sizes)]]
        total, caches = device.embed(caches, tokens, at)
        expected = states[at : at + len(tokens)].sum(axis=0)
        np.testing.assert_allclose(total, expected, atol=8 * TOLERANCE)
        at = min(at + len(tokens), len(TOKENS) - 8)


@pytest.mark.parametrize("count", first_by_day([5, 1, 8]))
def test_an_embedding_sees_no_padding_and_reads_as_a_prefill_does(
    device: Device, count: int
) -> None:
    other = make_device(TINY, padding=3)
    (one, caches), (two, _) = (
        tested.embed(tested.slot(), TOKENS[:count], 0) for tested in (device, other)
    )
    assert np.array_equal(one, two)
    read = make_device(TINY, replace(OPTIONS, prefill_tokens=(8,)), padding=60)
    for left, right in zip(caches, read.prefill(read.slot(), TOKENS[:count], 0), strict=True):
        np.testing.assert_allclose(left, right, atol=TOLERANCE)  # of another entry point


MISTAKES = {
    "the mask ignored in sliding layers": Mistakes(window_ignored=True),
    "a window of one key more": Mistakes(window_change=1),
    "a window of one key less": Mistakes(window_change=-1),
    "global layers counted from 0": Mistakes(layer_shift=-1),
    "scale 1": Mistakes(scale=1.0),
    "the scale of head_dim": Mistakes(scale=8**-0.5),
    "no sqrt(hidden)": Mistakes(embedding_scale=1.0),
    "sqrt(hidden) rounded as to bf16": Mistakes(embedding_scale=5.65625),
    "1 + w twice": Mistakes(norm_offset=1.0),
    "no query norm": Mistakes(query_norm=False),
    "no key norm": Mistakes(key_norm=False),
    "a value norm": Mistakes(value_norm=True),
    "the key norm after the rotation": Mistakes(key_norm_after_rope=True),
    "interleaved rotary positions": Mistakes(interleaved=True),
    "partial rotary positions": Mistakes(rotary_part=0.5),
    "one rotary base": Mistakes(one_rope_base=True),
    "no rotary factor": Mistakes(rope_factor=False),
    "the rotary factor in local layers": Mistakes(rope_factor_everywhere=True),
    "heads taking turns in sharing keys": Mistakes(heads_interleaved=True),
    "a reshape in place of a transpose": Mistakes(heads_reshaped=True),
    "a cache frozen to zeros": Mistakes(cache_frozen=True),
    "no norms behind attention and MLP": Mistakes(post_norms=False),
    "SiLU for GELU": Mistakes(activation="silu"),
}


@pytest.mark.parametrize("wrong", MISTAKES.values(), ids=MISTAKES)
def test_a_classic_mistake_would_be_seen(device: Device, decoded: Array, wrong: Mistakes) -> None:
    """The comparison above goes red for each: by 20 times its tolerance at least."""
    assert wrong != RIGHT
    difference = np.abs(decoded - forward(TINY, device.model_weights(), TOKENS, wrong))
    assert difference.max() > 20 * TOLERANCE


@pytest.mark.parametrize(("size", "least", "most"), [(3, 0.0, 2e-4), (9, 2e-3, 0.2)])
def test_bf16_weights(size: int, least: float, most: float) -> None:
    """Decoding and short chunks keep activations to 2^-16 of their sum; longer ones round them."""
    assert DECODE_ROWS == 8
    options = replace(OPTIONS, precision="bf16", kv_cache="f32", prefill_tokens=(3, 9))
    device = make_device(TINY, options)
    assert device.weights["embed_tokens.weight"].dtype == ml_dtypes.bfloat16
    actual = [device.logits_after(TOKENS[: n + 1], (size,)) for n in SOME]
    assert (
        least <= np.abs(actual - forward(TINY, device.model_weights(), TOKENS)[SOME]).max() < most
    )


@pytest.mark.parametrize(
    ("kv_cache", "sizes", "limit"), first_by_day([("f32", (3,), 3.9e-4), ("f16", (3, 8), 7.5e-4)])
)
def test_int8_g32_weights(kv_cache: KvCache, sizes: tuple[int, ...], limit: float) -> None:
    """Activations keep sixteen bits in each group of 32, keys and values in f16 eleven."""
    device = make_device(GROUPED, replace(OPTIONS, precision="int8-g32", kv_cache=kv_cache))
    real = {}
    for weight in device.program.weights:
        arrays = [device.weights[name] for name in weight.parameters]
        stem = next(iter(weight.parameters)).rpartition(".")[0]
        form = weight.storage.format
        real[f"{stem}.weight"] = arrays[0] if form is None else real_weights(arrays, form)
    apart = {
        name: real[f"{next(iter(one.parameters)).rpartition('.')[0]}.weight"][
            rows.start : rows.stop
        ]
        for one in device.program.weights
        for name, rows in one.rows().items()
    }
    expected = forward(GROUPED, apart, TOKENS)[SOME]
    actual = [device.logits_after(TOKENS[: n + 1], sizes) for n in SOME]
    assert np.sqrt(((actual - expected) ** 2).mean() / (expected**2).mean()) < limit


def test_a_table_in_sizes_that_its_kernels_do_not_have() -> None:
    with pytest.raises(DslError, match=r"multiple of 16 rows and of 32 columns, this .* 40$"):
        make_device(replace(TINY, hidden=40), replace(OPTIONS, precision="int8-g32"))


def test_columns_of_zeros_fill_the_last_group_of_an_mlp() -> None:
    device = make_device(TINY, replace(OPTIONS, precision="int8-g32"))
    (down,) = (
        one for one in device.program.weights if "layers.0.mlp.down_proj.weight" in one.sources
    )
    assert [array.type.nbytes for array in down.parameters.values()] == [32 * 64, 32 * 64 // 32 * 2]
    assert all(np.isfinite(cache).all() for cache in device.prefill(device.slot(), TOKENS[:8], 0))


# --- who can change what


@few(8)
@given(data=st.data())
def test_a_token_never_changes_what_is_before_it(device: Device, data: st.DataObject) -> None:
    """Also not through the caches, where a chunk has left the rows of later tokens."""
    changed = data.draw(st.integers(1, 7))
    position = data.draw(st.integers(0, changed - 1))
    first = device.prefill(device.slot(), TOKENS[:8], 0)
    other = [*TOKENS[:changed], (TOKENS[changed] + 1) % 61, *TOKENS[changed + 1 : 8]]
    second = device.prefill(device.slot(), other, 0)
    for left, right in zip(first, second, strict=True):
        assert np.array_equal(left[:changed], right[:changed])
        assert not np.array_equal(left[changed], right[changed])
    token = TOKENS[position]
    before, _ = device.decode([first], [token], [position])
    after, _ = device.decode([second], [token], [position])
    assert np.array_equal(before, after)


@pytest.fixture(scope="module")
def one_sliding_layer() -> Device:
    return make_device(replace(TINY, layers=1, windows=TINY.windows[:1]))


@few(8)
@given(data=st.data())
def test_a_sliding_layer_forgets_after_exactly_its_window(
    one_sliding_layer: Device, data: st.DataObject
) -> None:
    position = data.draw(st.integers(WINDOW, 39))
    sizes = data.draw(st.lists(st.integers(1, 8), min_size=1, max_size=3))
    tokens = TOKENS[: position + 1]
    before = one_sliding_layer.logits_after(tokens, sizes)
    gone = position - WINDOW
    forgotten = [(token + 1) % 61 for token in tokens[: gone + 1]]
    after = one_sliding_layer.logits_after([*forgotten, *tokens[gone + 1 :]], sizes)
    assert np.array_equal(before, after)
    oldest = [*tokens[: gone + 1], (tokens[gone + 1] + 1) % 61, *tokens[gone + 2 :]]
    assert not np.array_equal(before, one_sliding_layer.logits_after(oldest, sizes))


def test_the_rings_of_sliding_layers_wrap_around(device: Device) -> None:
    """So the comparisons above see wrapped rows: three rounds and more of a sliding layer's."""
    rows = {spec.name: spec.rows for spec in device.program.caches}
    assert rows["layers.0.key"] == WINDOW + OPTIONS.chunk == 12
    assert rows["layers.2.value"] == CONTEXT + OPTIONS.chunk
    assert len(TOKENS) > 3 * rows["layers.0.key"]


@pytest.mark.parametrize("sizes", [(16,), (8, 16), (16, 8)])
def test_several_chunks_at_once_are_as_one_after_the_other(
    device: Device, sizes: tuple[int, ...]
) -> None:
    long = make_device(TINY, replace(OPTIONS, long_prefill=16))
    rows = {spec.name: spec.rows for spec in long.program.caches}
    assert rows["layers.0.key"] == WINDOW + 16
    assert rows["layers.2.value"] == CONTEXT + OPTIONS.chunk  # it is never padded
    expected = device.logits_after(TOKENS[:33])
    np.testing.assert_allclose(long.logits_after(TOKENS[:33], sizes), expected, atol=TOLERANCE)


@pytest.mark.parametrize("length", first_by_day([4, 1, 5, 9, 13, 25, 38]))
def test_padding_is_never_seen(device: Device, length: int) -> None:
    """Nor is a chunk's padding that wraps around onto the rows of old tokens."""
    other = make_device(TINY, padding=3)
    tokens = TOKENS[: length + 1]
    assert np.array_equal(device.logits_after(tokens), other.logits_after(tokens))
    (once, twice) = (one.prefill(one.slot(), tokens[:1], 0) for one in (device, other))
    assert not all(map(np.array_equal, once, twice))  # it is there, though


def test_the_last_chunk_may_reach_beyond_the_context(device: Device) -> None:
    tokens = (TOKENS * 2)[:CONTEXT]
    expected = forward(TINY, device.model_weights(), tokens)[-1]
    # The chunk at 46 is padded up to position 48 or 53.
    for sizes in ((8,), (3,), (8, 8, 8, 8, 8, 6, 1)):
        np.testing.assert_allclose(device.logits_after(tokens, sizes), expected, atol=TOLERANCE)


@few(8)
@given(before=st.integers(1, 40), length=st.integers(1, 20))
def test_a_used_slot_gives_the_same_bits_as_a_new_one(
    device: Device, before: int, length: int
) -> None:
    used = device.slot()
    for at in range(0, before, 8):
        used = device.prefill(used, TOKENS[::-1][at : at + 8], at)
    again = device.logits_after(TOKENS[:length], caches=used)
    assert np.array_equal(again, device.logits_after(TOKENS[:length]))


def test_a_batch_of_two_equals_two_decodes(device: Device) -> None:
    """At different positions; only the matrix product may round otherwise with two rows."""
    slots = [device.slot(), device.slot()]
    slots[0] = device.prefill(slots[0], TOKENS[:7], 0)
    slots[1] = device.prefill(slots[1], TOKENS[20:23], 0)
    tokens, positions = [5, 9], [7, 3]
    both, after_both = device.decode(slots, tokens, positions)
    for i, caches in enumerate(slots):
        alone, (after,) = device.decode([caches], tokens[i : i + 1], positions[i : i + 1])
        np.testing.assert_allclose(both[i], alone[0], atol=1e-5)
        for left, right in zip(after_both[i], after, strict=True):
            np.testing.assert_allclose(left, right, atol=1e-5)
    assert np.abs(both[0] - both[1]).max() > 0.1


def test_a_verify_is_as_many_decodes_whatever_was_guessed_before(
    device: Device, decoded: Array
) -> None:
    """Every size and number of accepted guesses, over rings of 12 rows that wrap three times."""
    caches, at, turn = device.slot(), 0, 0
    while at + 8 <= len(TOKENS):
        size, right = (2, 8, 8)[turn % 3], (1, 3, 8)[turn % 3]
        wrong = [(token + 1) % TINY.vocab_size for token in TOKENS[at + right : at + size]]
        logits, caches = device.verify(caches, [*TOKENS[at : at + right], *wrong][:size], at)
        np.testing.assert_allclose(logits[:right], decoded[at : at + right], atol=TOLERANCE)
        at, turn = at + right, turn + 1
    assert at > 30
    logits, _ = device.decode([caches], [TOKENS[at]], [at])
    np.testing.assert_allclose(logits[0], decoded[at], atol=TOLERANCE)


@pytest.mark.parametrize("sizes", [(1,), (4, 2), (2, 2), (9,), (2, 4)], ids=str)
def test_sizes_of_a_verify_that_cannot_be(sizes: tuple[int, ...]) -> None:
    """No more than the ring has room for, nor than round alike."""
    chunk = 3 if max(sizes) == 4 else 16
    with pytest.raises(DslError, match="verify_tokens: expected rising sizes from 2 to"):
        replace(OPTIONS, prefill_tokens=(chunk,), verify_tokens=sizes)


def test_a_pair_without_a_verify_cannot_be() -> None:
    with pytest.raises(DslError, match="pair_tokens: expected 0 without verify_tokens, got 2"):
        replace(OPTIONS, verify_tokens=(), pair_tokens=2)
