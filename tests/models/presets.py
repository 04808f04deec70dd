"""Configurations of published models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.decoder.config.decoder_config import DecoderConfig, every_nth_layer_sees_all
from models.gemma3 import Config as Gemma3Config

if TYPE_CHECKING:
    from collections.abc import Mapping

GEMMA3: Mapping[str, Gemma3Config] = {
    "270m": Gemma3Config(
        layers=18, hidden=640, ffn=2048, heads=4, kv_heads=1, head_dim=256,
        max_context=32768, vocab_size=262144, query_scale=256**-0.5,
        windows=every_nth_layer_sees_all(6, 18, 512),
    ),
    "1b": Gemma3Config(
        layers=26, hidden=1152, ffn=6912, heads=4, kv_heads=1, head_dim=256,
        max_context=32768, vocab_size=262144, query_scale=256**-0.5,
        windows=every_nth_layer_sees_all(6, 26, 512),
    ),
    "4b": Gemma3Config(
        layers=34, hidden=2560, ffn=10240, heads=8, kv_heads=4, head_dim=256,
        max_context=131072, vocab_size=262208, query_scale=256**-0.5, rope_factor=8.0,
        windows=every_nth_layer_sees_all(6, 34, 1024),
    ),
    "12b": Gemma3Config(
        layers=48, hidden=3840, ffn=15360, heads=16, kv_heads=8, head_dim=256,
        max_context=131072, vocab_size=262208, query_scale=256**-0.5, rope_factor=8.0,
        windows=every_nth_layer_sees_all(6, 48, 1024),
    ),
    "27b": Gemma3Config(
        layers=62, hidden=5376, ffn=21504, heads=32, kv_heads=16, head_dim=128,
        max_context=131072, vocab_size=262208, query_scale=168**-0.5, rope_factor=8.0,
        windows=every_nth_layer_sees_all(6, 62, 1024),
    ),
}  # fmt: skip
SMOLLM2 = DecoderConfig(
    layers=30, hidden=576, ffn=1536, heads=9, kv_heads=3, head_dim=64, max_context=8192,
    vocab_size=49152, norm_eps=1e-5, rope_base=100_000.0, tied=True,
)  # fmt: skip
