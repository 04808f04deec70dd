"""A published size of each family of encoders, with few layers: see size_table.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.models.families.size import Size, decoder

if TYPE_CHECKING:
    from collections.abc import Mapping

ENCODER_SIZES: Mapping[str, Size] = {
    # sentence-transformers/all-MiniLM-L6-v2
    "bert": Size(384, 1536, 12, 12, 32, 30522, {"token_types": 2, "max_context": 512}),
    # google/embeddinggemma-300m
    "embeddinggemma": decoder(
        768, 1152, 3, 1, 256, 262144, query_scale=256**-0.5, windows=(257, None), dense=(3072, 768),
    ),
    # EuroBERT/EuroBERT-210m
    "eurobert": decoder(768, 3072, 12, 12, 64, 128256, rope_base=25e4, max_context=8192),
    # nvidia/llama-nemotron-embed-1b-v2
    "llama-embed": decoder(2048, 8192, 32, 8, 64, 128256, rope_base=5e5, max_context=8192),
    # Snowflake/snowflake-arctic-embed-m-v2.0
    "gte": decoder(
        768, 3072, 12, 12, 64, 250048, rope_base=16e4, token_types=1, max_context=8192
    ),
    # jinaai/jina-embeddings-v2-base-en
    "jina-v2": Size(768, 3072, 12, 12, 64, 30528, {"token_types": 2, "max_context": 8192}),
    # jinaai/jina-embeddings-v2-base-code
    "jina-v2-code": Size(768, 3072, 12, 12, 64, 61056, {"token_types": 2, "max_context": 8192}),
    # jinaai/jina-embeddings-v3
    "jina-v3": decoder(1024, 4096, 16, 16, 64, 250002, rope_base=2e4, token_types=1),
    # answerdotai/ModernBERT-base
    "modernbert": decoder(
        768, 1152, 12, 12, 64, 50368, rope_base=16e4, local_rope_base=1e4, windows=(None, 65),
    ),
    # nomic-ai/nomic-embed-text-v1.5
    "nomic-bert": decoder(
        768, 3072, 12, 12, 64, 30528, rope_base=1e3, token_types=2, max_context=2048
    ),
    # nomic-ai/nomic-embed-text-v2-moe
    "nomic-bert-moe": decoder(
        768, 3072, 12, 12, 64, 250048, rope_base=1e4, token_types=1, experts=8, expert_ffn=3072,
        experts_per_token=2, routed=(False, True), normalized=False, sum_bias=True,
    ),
    # Qwen/Qwen3-Reranker-0.6B
    "qwen3-reranker": decoder(1024, 3072, 16, 8, 128, 151669, pooling="rank"),
    # intfloat/multilingual-e5-small
    "xlm-roberta": Size(
        384, 1536, 12, 12, 32, 250037, {"token_types": 1, "skipped": 1, "max_context": 512}
    ),
}  # fmt: skip
