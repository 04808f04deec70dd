"""A small Gemma 3 with random weights: its configuration, entry points and tokens."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hearthd.models.decoder import entry_points
from hearthd.models.families.gemma3 import Config, Gemma3
from hearthd.models.program import ProgramOptions
from tests.models.numpy_device import Device

CONTEXT = 48
# No two extents agree, and the scale is not the one that head_dim would give.
WINDOW = 4
TINY = Config(
    layers=4, hidden=32, ffn=40, heads=4, kv_heads=2, head_dim=8, max_context=64,
    vocab_size=61, query_scale=6**-0.5, windows=(4, 4, None, 4),
    rope_factor=8.0, rope_base=1000.0, local_rope_base=100.0,
)  # fmt: skip
OPTIONS = ProgramOptions(
    context=CONTEXT,
    precision="f32",
    prefill_tokens=(3, 8),
    decode_batches=(1, 2),
    verify_tokens=(2, 8),
)
TOKENS = np.random.default_rng(0).integers(0, TINY.vocab_size, 40).tolist()
SOME = list(range(0, 40, 6))
# Logits are up to 3; f32 keeps 2e-7 of that, over four layers some times more.
TOLERANCE = 2e-5
# The kernels of int8-g32 have rows by sixteen, columns by 32, and heads by 64.
GROUPED = replace(TINY, hidden=64, ffn=96, head_dim=64, vocab_size=64)


def make_device(config: Config, options: ProgramOptions = OPTIONS, padding: int = 0) -> Device:
    return Device(entry_points.program(Gemma3(config), options), padding)
