"""Gemma 3 270M, compiled: every position, every slot, every way in.

Int8 has the real weights. The other precisions have two layers of the same shape: the compiler
generates the same code for all layers. test_compare_real_model.py has the real F32.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.baker.pipeline.bake import bake
from hearthd.baker.reference.numpy_runtime import program_options
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.models.cache_buffers import cache_types, empty_caches
from hearthd.models.decoder import entry_points
from hearthd.models.dsl import ops
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.fused import ROUNDED_MARGIN
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.families.gemma3 import ARCHITECTURE, Gemma3
from hearthd.runtime.interface import ALL_LOGITS, LOGIT_MARGIN, read_prompt
from hearthd.runtime.open_bundle import open_bundle
from tests.baker.small_gemma import small_gemma
from tests.conftest import Silent, few_entry_points, options_for, weights_in
from tests.models.presets import GEMMA3

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from hearthd.models.dsl.graph import Tensor
    from hearthd.runtime.language_model import IreeRuntime
    from tests.conftest import Bundles

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

GOLDEN = Path(__file__).parent.parent / "golden" / "gemma3_270m_llamacpp_f32.json"
POSITIONS = 700
# The start, the edge of the sliding window, where its ring wraps, and the end.
DECODED = (range(8), range(506, 518), range(632, 644), range(692, POSITIONS))
# Around these, and where the second chunk of a prefill begins.
VERIFIED = (range(8, 16), range(124, 136), range(498, 506), range(518, 526), range(644, 660))
# Where two sequences decode together.
TOGETHER = (range(100, 104), range(600, 604))
# Rounding: logits have a standard deviation of 1. A key too many changes them by more.
TOLERANCE = 2e-5
# The standard deviation of the error of a logit, in nats, with activations of 8 bits.
ROUNDING = 0.05
TWO_LAYERS = dataclasses.replace(GEMMA3["270m"], layers=2, windows=(512, None), vocab_size=272)
# Where a prefill of chunks of these sizes ends, over and over.
CHUNKS = ((128,), (1, 7, 16, 17, 128, 100, 3))


@pytest.fixture(scope="module")
def tokens() -> list[int]:
    """A real text that reaches beyond the 512 keys of the sliding window."""
    cases = json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]
    ids: list[int] = cases["fdl_1290"]["prompt_ids"][:POSITIONS]
    assert len(ids) == POSITIONS
    return ids


@pytest.fixture(scope="module")
def small_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_gemma(tmp_path_factory.mktemp("small") / "weights", TWO_LAYERS)


def baked(weights: Path, precision: str, slots: int) -> Path:
    out = weights.parent / precision
    options = options_for(out, weights=weights, precision=precision, context=1024)
    with few_entry_points():
        return bake(options.model_copy(update={"slots": slots}), Silent())


@pytest.fixture(scope="module")
def small_f32(small_weights: Path) -> Path:
    return baked(small_weights, "f32", slots=2)


@pytest.fixture(scope="module")
def small_bf16(small_weights: Path) -> Path:
    return baked(small_weights, "bf16", slots=4)


@pytest.fixture
def runtime(name: str, request: pytest.FixtureRequest) -> IreeRuntime:
    """Of the real bundle, or of two layers, for which no test waits for the real one."""
    value = request.getfixturevalue
    bundle = value("bundles")["gemma3"] if name == "int8-g32" else value(f"small_{name}")
    return open_bundle(bundle, threads=None)[1]


@pytest.fixture(scope="module")
def exact(small_f32: Path) -> IreeRuntime:
    return open_bundle(small_f32, threads=None)[1]


@pytest.fixture(scope="module")
def few(exact: IreeRuntime, tokens: list[int]) -> list[int]:
    """The text in the small vocabulary."""
    return read_by(exact, tokens)


def read_by(runtime: IreeRuntime, tokens: Sequence[int]) -> list[int]:
    """The tokens as ids of a runtime's vocabulary, which may be smaller."""
    return [token % runtime.vocab_size for token in tokens]


@pytest.fixture(scope="module")
def reference(small_f32: Path, few: list[int]) -> dict[int, NDArray[np.float32]]:
    """NumPy's logits f32 (V,) by position, without chunks and without decoding."""
    bundle = small_f32
    manifest = read_manifest_of(bundle, LanguageManifest)
    config = ARCHITECTURE.from_manifest(manifest.config)
    # The rings of a chunk of all positions never wrap, unlike the baked program's.
    options = dataclasses.replace(
        program_options(manifest),
        prefill_tokens=(POSITIONS,),
        decode_batches=(1,),
        verify_tokens=(),
        pair_tokens=0,
    )
    model = Gemma3(config)
    program = entry_points.program(model, options)
    parameters = weights_in(bundle)

    def hidden(ids: Tensor, *buffers: Tensor) -> tuple[Tensor, ...]:
        caches = [[pair] for pair in zip(buffers[::2], buffers[1::2], strict=True)]
        start = ops.full(shape=(1,), dtype=DType.I32, value=0)
        return (entry_points.read(model, ids, [start], caches, manifest.context)[0],)

    inputs = {"ids": TensorType((POSITIONS,), DType.I32)}
    inputs |= cache_types(program.caches)
    graph = trace("hidden", hidden, inputs, parameters=model.parameters())
    values: list[NDArray[Any]] = [np.array(few, np.int32), *empty_caches(program.caches)]
    (h,) = evaluate(graph, values, parameters)

    positions = checked_positions()
    head = trace(
        "head",
        lambda x: (model.logits(x),),
        {"h": TensorType((len(positions), config.hidden), DType.F32)},
        parameters=model.parameters(),
    )
    (logits,) = evaluate(head, [h[positions]], parameters)
    return dict(zip(positions, logits, strict=True))


def checked_positions() -> list[int]:
    """The positions that a test looks at."""
    ends = [stop - 1 for sizes in CHUNKS for _, stop in chunks(sizes, POSITIONS)]
    return sorted({*itertools.chain(*DECODED, *VERIFIED, *TOGETHER), *ends})


def chunks(sizes: Sequence[int], total: int) -> Iterator[tuple[int, int]]:
    """(start, stop) of chunks of the given sizes, over and over, up to a total."""
    start = turn = 0
    while start < total:
        stop = min(start + sizes[turn % len(sizes)], total)
        yield start, stop
        start, turn = stop, turn + 1


def test_decode_and_verify_predict_as_numpy_does(
    exact: IreeRuntime,
    few: list[int],
    reference: dict[int, NDArray[np.float32]],
) -> None:
    """Decode where something begins or wraps, verify around it, and prefill the rest."""
    worst, position = 0.0, 0
    while position < POSITIONS:
        if any(position in positions for positions in DECODED):
            rows = exact.decode([0], [few[position]], [position])
        elif verified := [positions for positions in VERIFIED if position in positions]:
            stop = min(position + max(exact.verify_tokens), verified[0].stop)
            rows = np.stack(list(exact.verify(0, few[position:stop], position)))
        else:
            starts = (positions.start for positions in (*DECODED, *VERIFIED))
            stop = min(start for start in starts if start > position)
            stop = min(stop, position + exact.chunk)
            exact.prefill(0, few[position:stop], position)
            position = stop
            continue
        for row in rows:
            worst = max(worst, float(np.abs(row - reference[position]).max()))
            position += 1
    assert worst < TOLERANCE


@pytest.mark.parametrize("sizes", CHUNKS, ids=["whole", "mixed"])
def test_prefill_predicts_after_every_chunk(
    exact: IreeRuntime,
    few: list[int],
    reference: dict[int, NDArray[np.float32]],
    sizes: tuple[int, ...],
) -> None:
    worst = 0.0
    for start, stop in chunks(sizes, POSITIONS):
        logits = read_prompt(exact, few[start:stop], slot=1, start=start)
        worst = max(worst, float(np.abs(logits - reference[stop - 1]).max()))
    assert worst < TOLERANCE


def test_decode_continues_a_padded_prefill_beyond_the_window(
    exact: IreeRuntime,
    few: list[int],
    reference: dict[int, NDArray[np.float32]],
) -> None:
    for start, stop in chunks((128, 77), 650):
        exact.prefill(0, few[start:stop], start)
    for position in range(650, 660):
        logits = exact.decode([0], [few[position]], [position])[0]
        assert np.abs(logits - reference[position]).max() < TOLERANCE


def test_two_slots_do_not_share_a_cache(bundles: Bundles, tokens: list[int]) -> None:
    """A sequence has the same logits alone and with another sequence in the other slot."""
    _, runtime = open_bundle(bundles["gemma3"], threads=None)
    mine, other = tokens[:28], tokens[300:328]

    def alone() -> list[NDArray[np.float32]]:
        return [read_prompt(runtime, mine[:20])] + [
            runtime.decode([0], [mine[i]], [i])[0] for i in range(20, 28)
        ]

    def together() -> list[NDArray[np.float32]]:
        rows = [read_prompt(runtime, mine[:20])]
        runtime.prefill(1, other[:20], 0)
        for i in range(20, 28):
            runtime.decode([1], [other[i]], [i])
            rows.append(runtime.decode([0], [mine[i]], [i])[0])
        return rows

    for before, after in zip(alone(), together(), strict=True):
        np.testing.assert_array_equal(before, after)


def test_a_batch_of_two_equals_two_single_sequences(
    exact: IreeRuntime,
    few: list[int],
    reference: dict[int, NDArray[np.float32]],
) -> None:
    """Sequences at different positions decode together as they do alone."""
    exact.prefill(0, few[:100], 0)
    for start, stop in chunks((128,), 600):
        exact.prefill(1, few[start:stop], start)
    for near, far in zip(*TOGETHER, strict=True):
        both = exact.decode([0, 1], [few[near], few[far]], [near, far])
        assert np.abs(both[0] - reference[near]).max() < TOLERANCE
        assert np.abs(both[1] - reference[far]).max() < TOLERANCE


@pytest.mark.parametrize(
    ("name", "batches"),
    [
        ("bf16", (2, 4)),
        ("f32", (2,)),
        ("int8-g32", (2, 4, 8)),
    ],
)
def test_a_sequence_has_the_same_bits_in_any_batch(
    runtime: IreeRuntime, tokens: list[int], batches: tuple[int, ...]
) -> None:
    """A sequence has the same logits alone and in every batch, at every place in it."""
    tokens = read_by(runtime, tokens)
    lengths = (5, 40, 130, 600, 17, 300, 3, 90)[: max(batches)]

    def read(slots: Sequence[int]) -> None:
        for slot in slots:
            for start, stop in chunks((runtime.chunk,), lengths[slot]):
                runtime.prefill(slot, tokens[start:stop], start)

    def step(slots: Sequence[int], ahead: int) -> NDArray[np.float32]:
        at = [lengths[slot] + ahead for slot in slots]
        return runtime.decode(slots, [tokens[position] for position in at], at)

    everyone = range(len(lengths))
    read(everyone)
    alone = {(slot, ahead): step([slot], ahead)[0] for slot in everyone for ahead in range(3)}
    for batch in batches:
        slots = list(reversed(everyone))[:batch]
        read(slots)
        for ahead in range(3):
            for slot, row in zip(slots, step(slots, ahead), strict=True):
                np.testing.assert_array_equal(row, alone[slot, ahead])


@pytest.mark.parametrize(
    "name",
    ["f32", "bf16", "int8-g32"],
)
def test_verify_has_the_same_bits_as_repeated_decodes(
    runtime: IreeRuntime, tokens: list[int]
) -> None:
    """At the start, at the window's edge and where its ring wraps; whatever was guessed before."""
    tokens = read_by(runtime, tokens)
    most = max(runtime.verify_tokens)
    done = 0
    for length in (5, 510, 636):
        for slot in (0, 1):
            for start in range(done, length, runtime.chunk):
                stop = min(start + runtime.chunk, length)
                runtime.prefill(slot, tokens[start:stop], start)
        done = length + 2 * most
        alone = [runtime.decode([0], [tokens[at]], [at])[0] for at in range(length, done)]
        for at in range(length, done, most):
            guesses = (tokens[at : at + 2] + [7] * most)[:most]
            wrong = list(runtime.verify(1, guesses, at))
            right = list(runtime.verify(1, tokens[at + 1 : at + most], at + 1))
            for row, expected in zip([*wrong[:2], *right[1:]], alone[at - length :], strict=False):
                np.testing.assert_array_equal(row, expected)
            assert len(right) == most - 1


def test_logits_near_the_best_one_are_those_of_an_exact_step(
    bundles: Bundles, tokens: list[int]
) -> None:
    """The best ones have the same bits, others that may be drawn are rounded, and the rest is near.

    The margin of a neighbor changes nothing.
    """
    _, runtime = open_bundle(bundles["gemma3"], threads=None)
    for slot in (0, 1):
        runtime.prefill(slot, tokens[:40], 0)
    coarse = 0
    for at in range(40, 60):
        token = [tokens[at]] * 2
        exact, quick = runtime.decode([0, 1], token, [at, at], [ALL_LOGITS, LOGIT_MARGIN])
        # The step compares logits of its first pass, which differ.
        near, drawn = (exact > exact.max() - 0.7 * m for m in (ROUNDED_MARGIN, LOGIT_MARGIN))
        np.testing.assert_array_equal(quick[near], exact[near])
        assert np.abs(quick - exact)[drawn].max() < 6 * ROUNDING
        assert np.abs(quick - exact).max() < 0.7 * LOGIT_MARGIN
        coarse += int(np.count_nonzero(quick != exact))
        np.testing.assert_array_equal(runtime.decode([0], token[:1], [at], [ALL_LOGITS])[0], exact)
        np.testing.assert_array_equal(runtime.decode([1], token[:1], [at])[0], quick)
        (verified,) = runtime.verify(1, token[:1], at, margin=ALL_LOGITS)
        np.testing.assert_array_equal(verified, exact)
    assert coarse > 10 * len(exact)  # half of all at least, or they are not read less
