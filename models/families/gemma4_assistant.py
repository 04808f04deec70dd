"""The assistants of Gemma 4: a few of its layers, with the keys and values of another model.

Source: the model `gemma4_assistant` of transformers (2026); `gemma4-assistant` of llama.cpp.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.models.config import ConfigError
from hearthd.models.decoder.architecture import AssistantArchitecture
from hearthd.models.decoder.gemma4_config import (
    Gemma4Config,
    fields_from_gguf,
    fields_from_hugging_face,
)
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType
from hearthd.models.families import gemma4
from hearthd.models.families.gemma4 import Gemma4

if TYPE_CHECKING:
    from typing import Any

    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.decoder.kv_cache import LayerCache
    from hearthd.models.dsl.graph import Tensor


_UNLIKELY = -1e30  # the logit of a token of another cluster


@dataclass(frozen=True, kw_only=True)
class Config(Gemma4Config):
    """The shape of an assistant.

    backbone  the hidden width of the model that it helps
    clusters  of tokens; None: every row of the head is computed
    chosen    clusters whose tokens have logits
    """

    backbone: int
    clusters: int | None = None
    chosen: int | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clusters is None:
            return
        if self.vocab_size % self.clusters or not 1 <= (self.chosen or 0) <= self.clusters:
            raise ConfigError(
                f"num_centroids: got {self.clusters}, of which {self.chosen} are chosen, expected "
                f"a divisor of {self.vocab_size} tokens, and at most as many chosen"
            )

    @override
    def shares(self, layer: int) -> bool:
        return True

    @override
    def source(self, layer: int) -> int:
        """0: the model's layer with a window; 1: its layer without."""
        return 0 if self.windows and self.windows[layer] else 1


class ClusteredHead(nn.Module):
    """The head for the tokens of the clusters whose centroids are closest.

    token_ordering  f32 (V,): the tokens of the first cluster, of the second, and so on
    """

    def __init__(self, hidden: int, tokens: int, clusters: int, chosen: int) -> None:
        self.centroids = nn.Linear(hidden, clusters)
        self.token_ordering = nn.parameter(tokens, dtype=DType.F32)
        self._chosen = chosen

    def logits(self, y: Tensor, table: nn.Embedding) -> Tensor:
        """A state (1, E) and the rows of the head -> logits (1, V), very low for other tokens."""
        (tokens,), clusters = self.token_ordering.shape, self.centroids.weight.shape[0]
        # The compiler rejects the comparisons of `top_indices` in the dispatch of a product.
        closest = f.top_indices(ops.barrier(self.centroids(y)), count=self._chosen)
        order = ops.reshape(self.token_ordering, shape=(clusters, tokens // clusters))
        ids = ops.gather(order, ops.reshape(closest, shape=(self._chosen,)), axis=0)
        count = self._chosen * (tokens // clusters)
        ids = ops.convert(ops.reshape(ids, shape=(count,)), dtype=DType.I32)
        logits = f.matmul_transposed(y, table(ids), dtype=y.dtype)
        column = ops.full_like(ops.reshape(self.token_ordering, shape=(tokens, 1)), _UNLIKELY)
        logits = ops.reshape(logits, shape=(count, 1))
        column = ops.scatter(column, ids, logits, combine="replace")
        return ops.reshape(column, shape=(1, tokens))


class Gemma4Assistant(Gemma4):
    """Layers with queries only."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.pre_projection = nn.Linear(2 * config.backbone, config.hidden)
        self.post_projection = nn.Linear(config.hidden, config.backbone)
        self.masked_embedding: ClusteredHead | None = None
        if config.clusters and config.chosen:
            self.masked_embedding = ClusteredHead(
                config.hidden, config.vocab_size, config.clusters, config.chosen
            )

    def assist(
        self, inputs: Tensor, position: Tensor, local: LayerCache, everywhere: LayerCache
    ) -> tuple[Tensor, Tensor]:
        """See `Assistant`."""
        y = self(position, position, [local, everywhere], self.pre_projection(inputs))
        head = self.masked_embedding
        logits = self.logits(y) if head is None else head.logits(y, self.embed_tokens)
        return logits, self.post_projection(y)


def _from_hugging_face(data: ConfigJson) -> Config:
    clusters = data.size("num_centroids", default=2048)
    chosen = data.size("centroid_intermediate_top_k", default=32)
    head = {"clusters": clusters, "chosen": chosen}
    head = head if data.flag("use_ordered_embeddings", default=False) else {}
    backbone, section = data.size("backbone_hidden_size"), data.text_section()
    section.fixed(enable_moe_block=False, num_experts=None, top_k_experts=None)
    section.fixed(moe_intermediate_size=None, hidden_size_per_layer_input=0)
    return _config(fields_from_hugging_face(section) | head, backbone)


def _from_gguf(data: GgufMetadata) -> Config:
    data.ignore("nextn_predict_layers")
    return _config(fields_from_gguf(data), data.size("embedding_length_out"))


def _config(fields: dict[str, Any], backbone: int) -> Config:
    """The configuration of the fields of Gemma 4; no layer has keys, and logits have no cap."""
    shape = {"caching_layers": fields["layers"], "keys_are_values": False, "logit_cap": None}
    return Config(**{**fields, **shape}, backbone=backbone)


_NAMES = gemma4.ARCHITECTURE.tensors
ARCHITECTURE = AssistantArchitecture(
    name="gemma4-assistant",
    config=Config,
    model_types=("gemma4_assistant", "gemma4_unified_assistant"),
    read_config_json=_from_hugging_face,
    read_gguf=_from_gguf,
    model=Gemma4Assistant,
    tensors=replace(
        _NAMES,
        gguf={
            **_NAMES.gguf,
            "pre_projection": "nextn.pre_projection",
            "post_projection": "nextn.post_projection",
        },
        others=("masked_embedding.",),
    ),
)
