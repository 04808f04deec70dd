"""The buffers of keys and values that a slot has with `--kv-cache int4`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hearthd.models.decoder.slot_caches import row_caches
from tests.models.test_optimized import OPTIONS


@pytest.mark.parametrize(
    ("head", "dtypes", "bits"),
    [
        (64, ["i6", "i4", "f16", "f16"], 6 + 4 + 2 * 16 / 32),
        (96, ["i6", "i4", "f16", "f16"], 6 + 4 + 2 * 16 / 32),
        (80, ["i8", "i8", "f32", "f32"], 2 * 8 + 2 * 32 / 80),
        (576, ["i8", "i8", "f32", "f32"], 2 * 8 + 2 * 32 / 576),  # latent vectors of DeepSeek
    ],
)
def test_heads_that_int4_cannot_hold_have_caches_of_int8(
    head: int, dtypes: list[str], bits: float
) -> None:
    specs = row_caches("layers.0", 7, 3 * head, 3, replace(OPTIONS, kv_cache="int4"))
    assert [spec.dtype for spec in specs] == dtypes
    assert sum(spec.bytes for spec in specs) == round(7 * 3 * head * bits / 8)


def test_rows_without_heads_have_caches_of_f16() -> None:
    specs = row_caches("layers.0", 7, 64, 0, replace(OPTIONS, kv_cache="int4"))
    assert [(spec.dtype, spec.shape) for spec in specs] == [("f16", (7, 64))] * 2
