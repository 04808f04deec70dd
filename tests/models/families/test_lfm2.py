"""The state of LFM2's convolutions in a slot: by position, whatever was there before."""

from __future__ import annotations

import numpy as np
import pytest

from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.families.lfm2 import Config
from hearthd.models.program import ProgramOptions
from tests.models.numpy_device import Device

CONFIG = Config(
    layers=3, hidden=32, ffn=40, heads=4, kv_heads=2, head_dim=8, max_context=64, vocab_size=61,
    norm_eps=1e-3, rope_base=1000.0, tied=True, taps=4, attends=(False, True, False),
    windows=(4, None, 4),
)  # fmt: skip
OPTIONS = ProgramOptions(
    context=40, precision="f32", prefill_tokens=(3, 8), decode_batches=(1,), verify_tokens=(4,)
)
TOKENS = np.random.default_rng(0).integers(0, CONFIG.vocab_size, 30).tolist()


@pytest.fixture(scope="module")
def device() -> Device:
    return Device(ARCHITECTURES["lfm2"].program(CONFIG, OPTIONS))


def test_what_was_in_a_slot_before_does_not_matter(device: Device) -> None:
    rng = np.random.default_rng(1)
    used = [rng.normal(size=cache.shape).astype(np.float32) for cache in device.slot()]
    for count in (1, 2, 5, 12):
        fresh = device.logits_after(TOKENS[:count])
        np.testing.assert_array_equal(device.logits_after(TOKENS[:count], caches=used), fresh)


@pytest.mark.parametrize("sizes", [(3,), (8,), (1, 5, 2)], ids=str)
def test_chunks_of_any_sizes_give_the_same_logits(device: Device, sizes: tuple[int, ...]) -> None:
    expected = device.logits_after(TOKENS, (1,))
    np.testing.assert_allclose(device.logits_after(TOKENS, sizes), expected, atol=2e-5)


def test_rejected_guesses_leave_no_trace(device: Device) -> None:
    """Speculation: a verify reads tokens of which only the first is kept."""
    caches = device.prefill(device.slot(), TOKENS[:7], 0)
    guessed, caches = device.verify(caches, [TOKENS[7], 1, 2, 3], 7)
    expected = device.logits_after(TOKENS[:8])
    np.testing.assert_allclose(guessed[0], expected, atol=2e-5)
    logits, _ = device.decode([caches], [TOKENS[8]], [8])
    np.testing.assert_allclose(logits[0], device.logits_after(TOKENS[:9]), atol=2e-5)
