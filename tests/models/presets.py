"""Configurations of published models."""

from __future__ import annotations

from benchmarks.synthetic_shapes import SIZES
from hearthd.models.decoder.config.decoder_config import DecoderConfig
from hearthd.models.families.gemma3 import Config as Gemma3Config

__all__ = ["GEMMA3", "SMOLLM2"]

GEMMA3 = {name: config for name, config in SIZES.items() if isinstance(config, Gemma3Config)}
SMOLLM2 = DecoderConfig(
    layers=30, hidden=576, ffn=1536, heads=9, kv_heads=3, head_dim=64, max_context=8192,
    vocab_size=49152, norm_eps=1e-5, rope_base=100_000.0, tied=True,
)  # fmt: skip
