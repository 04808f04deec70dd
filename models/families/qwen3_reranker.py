"""Qwen3-Reranker: Qwen3 reads a query and a document, and answers yes or no.

Source: "Qwen3 Embedding: Advancing Text Embedding and Reranking Through Foundation Models" (Zhang
et al., 2025), and the prompt of the model card.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from typing_extensions import override

from hearthd.bundle import PairPrompt
from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.config_json import LOGIT_SCORE, POOLING
from hearthd.models.decoder.config.decoder_config import DecoderConfig, from_gguf_metadata
from hearthd.models.decoder.next_token_loss import whole_sequence_states
from hearthd.models.decoder.tensor_names import GGUF_NAMES, TensorNames
from hearthd.models.dsl import functions as f
from hearthd.models.dsl import nn, ops
from hearthd.models.dsl.types import DType
from hearthd.models.encoder.encoder_architecture import EncoderArchitecture
from hearthd.models.encoder.encoder_layers import score
from hearthd.models.families.qwen2 import qwen_fields
from hearthd.models.families.qwen3 import Qwen3

if TYPE_CHECKING:
    from hearthd.models.decoder.config.config_json import ConfigJson
    from hearthd.models.decoder.config.gguf_metadata import GgufMetadata
    from hearthd.models.dsl.graph import Tensor
    from hearthd.models.encoder.texts import Texts

_YES, _NO = 9693, 2152  # in Qwen3's vocabulary
_ANSWERS = 2  # rows of a classification head: yes and no
PROMPT = PairPrompt(
    before="<|im_start|>system\nJudge whether the Document meets the requirements based on the "
    'Query and the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n",
    query="<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
    "<Query>: ",
    document="\n<Document>: ",
    behind="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
)


@dataclass(frozen=True, kw_only=True)
class Config(DecoderConfig):
    """The shape of a model.

    labels  rows of its classification head: 1 for the score, 2 for yes and no; None: it has none
    yes     without such a head, the token whose logit counts for a document
    no      and the token whose logit counts against it
    """

    poolings: ClassVar[tuple[str, ...]] = ("rank",)

    labels: int | None = None
    yes: int = _YES
    no: int = _NO

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labels is None and max(self.yes, self.no) >= self.vocab_size:
            raise ConfigError(
                f"tokens of yes and no: got {self.yes} and {self.no}, expected ids below the "
                f"{self.vocab_size} of the vocabulary"
            )
        if self.labels not in (None, 1, _ANSWERS):
            raise ConfigError(f"classifier: got {self.labels} labels, supported are 1 and 2")


class ClassificationHead(nn.Module):
    """A row for each label."""

    def __init__(self, labels: int, hidden: int) -> None:
        self.weight = nn.parameter(labels, hidden, dtype=DType.F32)


class Qwen3Reranker(Qwen3):
    """The logit of yes minus the logit of no after the last token: the log-odds of yes."""

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        if config.labels:
            self.classifier = ClassificationHead(config.labels, config.hidden)

    def encode(self, texts: Texts) -> Tensor:
        """Texts -> their scores (B, 1)."""
        h = whole_sequence_states(self, texts.tokens, sequences=texts.shape[0])
        rows = self.answers()
        weight = f.narrow(rows, 0, 0, 1)
        if rows.shape[0] == _ANSWERS:
            weight = weight - f.narrow(rows, 0, 1, _ANSWERS)
        return score(texts.pooled(h, "last"), weight)

    def answers(self) -> Tensor:
        """The rows of the head for yes and no, or for the score: (2, E) or (1, E)."""
        if self.config.labels:
            return self.classifier.weight
        head = self.lm_head or self.embed_tokens
        ids = np.array([self.config.yes, self.config.no], np.int32)
        return f.embedding(ops.constant(value=ids), head.weight)


def from_hugging_face(data: ConfigJson) -> Config:
    """Read config.json of a model with one label, or of a language model that answers."""
    fields = qwen_fields(data)
    if data.has(POOLING):
        raise ConfigError(f"{POOLING}: got a model that embeds texts, expected a reranker")
    if data.encoder_pooling() == "rank":
        return Config(**fields | {"pooling": "rank"}, labels=1)
    yes, no = _YES, _NO
    if data.has(LOGIT_SCORE):
        answers = data.section(LOGIT_SCORE)
        answers.fixed(module_input_name="causal_logits")
        yes, no = answers.size("true_token_id"), answers.size("false_token_id")
    return Config(**fields | {"pooling": "rank"}, yes=yes, no=no)


def from_gguf(data: GgufMetadata) -> Config:
    """Read GGUF metadata."""
    data.texts("classifier.output_labels", default=())
    return Config(**from_gguf_metadata(data), labels=data.rows("cls.output.weight"))


ARCHITECTURE = EncoderArchitecture(
    name="qwen3-reranker",
    gguf_name="qwen3",
    config=Config,
    model_types=("qwen3",),
    read_config_json=from_hugging_face,
    read_gguf=from_gguf,
    model=Qwen3Reranker,
    tensors=TensorNames(
        gguf={**GGUF_NAMES, "classifier": "cls.output"}, folder={"classifier": "score"}
    ),
    pair_prompt=PROMPT,
)
