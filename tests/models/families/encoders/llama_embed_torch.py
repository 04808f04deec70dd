"""NVIDIA's embedders made of Llama: EuroBERT's layers compute the same."""

from __future__ import annotations

from typing import Any

from transformers import EuroBertModel, LlamaConfig


class LlamaEmbedConfig(LlamaConfig):  # type: ignore[misc]
    """Llama's, with what published files have besides."""

    model_type = "llama_bidirec"
    pooling: str = "avg"
    temperature: float = 1.0


class LlamaEmbedModel(EuroBertModel):  # type: ignore[misc]
    """The encoder."""

    config_class: Any = LlamaEmbedConfig
