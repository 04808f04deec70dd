"""A compiled model with KV caches of integers: the same bits whatever runs beside a sequence.

Beside caches of int8 its products round activations to 16 bits, and to 8 beside caches of int4.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console

from hearthd.baker.checks.inspection import show
from hearthd.baker.pipeline.bake import bake
from hearthd.baker.reference.numpy_runtime import program_options
from hearthd.bundle import LanguageManifest, read_manifest_of
from hearthd.models.precision import ACTIVATION_TOLERANCE, KV_TOLERANCE
from hearthd.runtime.interface import ALL_LOGITS
from hearthd.runtime.open_bundle import open_bundle
from tests.baker.small_gemma import small_gemma
from tests.conftest import Silent, few_entry_points, options_for

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.runtime.language_model import IreeRuntime

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

# The dtype of keys and of values, bits, columns that share a scale (0: all of a head), its dtype.
STORED = {
    ("int8", "key"): ("i8", 8, 0, "f32"),
    ("int8", "value"): ("i8", 8, 0, "f32"),
    ("int4", "key"): ("i6", 6, 32, "f16"),
    ("int4", "value"): ("i4", 4, 32, "f16"),
}
TOKENS = [int(token) for token in np.random.default_rng(3).integers(3, 60, 290)]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("int16", "int8"), id="int16-int8"),
        pytest.param(("int8", "int4"), id="int8-int4"),
    ],
)
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("caches")
    activations, kv_cache = request.param
    small = options_for(
        folder / "small",
        weights=small_gemma(folder / "weights"),
        context=512,
        slots=2,
        kv_cache=kv_cache,
        activations=activations,
    )
    with few_entry_points():
        return bake(small, Silent())


@pytest.fixture(scope="module")
def runtime(bundle: Path) -> IreeRuntime:
    return open_bundle(bundle, threads=1)[1]


def read(runtime: IreeRuntime, slot: int, stop: int) -> None:
    """Prefill the tokens before a position, in whole chunks and a rest."""
    for start in range(0, stop, runtime.chunk):
        runtime.prefill(slot, TOKENS[start : min(start + runtime.chunk, stop)], start)


def test_the_manifest_states_the_caches(bundle: Path) -> None:
    manifest = read_manifest_of(bundle, LanguageManifest)
    kv_cache = manifest.provenance.options["kv_cache"]
    assert program_options(manifest).kv_cache == kv_cache
    assert manifest.tolerance > KV_TOLERANCE[kv_cache] > 0
    by_name = {spec.name: spec for spec in manifest.caches}
    for name in ("key", "value"):
        integers, scales = by_name[f"layers.0.{name}"], by_name[f"layers.0.{name}_scale"]
        heads = manifest.config["kv_heads"]
        width = heads * manifest.config["head_dim"]
        dtype, bits, scaled, scale = STORED[kv_cache, name]
        assert (integers.dtype, integers.width) == (dtype, width)
        assert integers.row_bytes == width * bits // 8
        assert (scales.dtype, scales.rows) == (scale, integers.rows)
        assert scales.width == width // (scaled or manifest.config["head_dim"])
    assert manifest.memory.slot == sum(spec.bytes for spec in manifest.caches)


def test_the_manifest_states_the_activations(bundle: Path) -> None:
    manifest = read_manifest_of(bundle, LanguageManifest)
    assert manifest.activations == program_options(manifest).activations
    suffix = "_a8" if manifest.activations == "int8" else ""
    product = {f"linear_int8_g32{suffix}", f"linear_int8_g32_rounded{suffix}"}
    products = {name for name in manifest.provenance.kernels.names if name.startswith("linear_")}
    head = {"linear_coarse_int8_g32_upper", "linear_coarse_and_fine_int8_g32_upper"}
    head |= {"linear_refined_int8_g32_upper"}
    assert products == {*product, *head, "linear_refined_int4_g32"}
    assert manifest.tolerance >= ACTIVATION_TOLERANCE[manifest.activations]
    printed = io.StringIO()
    show(bundle, Console(file=printed, width=200))
    shown = re.search(r"^ *activations +int8 *$", printed.getvalue(), re.MULTILINE)
    assert (shown is not None) == (manifest.activations == "int8")


def test_a_restored_prompt_has_the_same_bits(runtime: IreeRuntime) -> None:
    read(runtime, 0, 256)
    blocks = [runtime.save(0, start, start + runtime.chunk) for start in (0, 128)]
    runtime.prefill(0, TOKENS[256:280], 256)
    expected = runtime.decode([0], TOKENS[280:281], [280])
    runtime.restore(1, 0, blocks)
    runtime.prefill(1, TOKENS[256:280], 256)
    assert np.array_equal(runtime.decode([1], TOKENS[280:281], [280]), expected)


def test_a_sequence_has_the_same_bits_in_a_batch(runtime: IreeRuntime) -> None:
    read(runtime, 0, 140)
    alone = [runtime.decode([0], [TOKENS[p]], [p], [ALL_LOGITS])[0] for p in range(140, 144)]
    read(runtime, 0, 140)
    read(runtime, 1, 70)
    for step, row in enumerate(alone):
        positions = [140 + step, 70 + step]
        tokens = [TOKENS[p] for p in positions]
        both = runtime.decode([0, 1], tokens, positions, [ALL_LOGITS] * 2)
        assert np.array_equal(both[0], row)


def test_verified_tokens_have_the_bits_of_decoded_ones(runtime: IreeRuntime) -> None:
    read(runtime, 0, 140)
    decoded = [runtime.decode([0], [TOKENS[p]], [p], [ALL_LOGITS])[0] for p in range(140, 144)]
    read(runtime, 1, 140)
    verified = runtime.verify(1, TOKENS[140:144], 140, margin=ALL_LOGITS)
    assert all(map(np.array_equal, verified, decoded))
    assert np.array_equal(runtime.save(0, 128, 144), runtime.save(1, 128, 144))
