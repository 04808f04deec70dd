"""Tiny encoders, by the arguments of their configurations in transformers, and texts for them."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from tests.models.families.cases import SMALL, random_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Array = NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class EncoderCase:
    """A model.

    architecture  a name of ENCODERS
    config        the configuration's class in transformers
    arguments     its arguments
    ranks         whether it has a classification head
    modules       by file, the configurations of what sentence-transformers does after the model
    """

    architecture: str
    config: str
    arguments: Mapping[str, Any]
    ranks: bool = False
    modules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def pooling(self) -> str:
        """The name that sentence-transformers has for the vector of a text."""
        mode: str = self.modules.get("1_Pooling/config.json", {}).get("pooling_mode", "mean")
        return mode

    @property
    def answers(self) -> tuple[int, int] | None:
        """The tokens of a language model whose logits score a pair: their difference does."""
        ids = self.modules.get("1_LogitScore/config.json")
        return None if ids is None else (ids["true_token_id"], ids["false_token_id"])

    @property
    def dense(self) -> list[str]:
        """The folders of the dense layers."""
        return [path.split("/")[0] for path in self.modules if "Dense" in path]


def _pooling(mode: str) -> dict[str, Any]:
    return {"1_Pooling/config.json": {"embedding_dimension": 48, "pooling_mode": mode}}


def _dense(inputs: int, outputs: int) -> dict[str, Any]:
    identity = "torch.nn.modules.linear.Identity"
    widths = {"in_features": inputs, "out_features": outputs}
    return {**widths, "bias": False, "activation_function": identity}


def _answers(yes: int, no: int) -> dict[str, Any]:
    ids = {"true_token_id": yes, "false_token_id": no}
    return {"1_LogitScore/config.json": {**ids, "module_input_name": "causal_logits"}}


_BERT: Mapping[str, Any] = {
    "vocab_size": 97, "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3,
    "num_attention_heads": 4, "max_position_embeddings": 320, "pad_token_id": 0,
}  # fmt: skip
_ROBERTA = {
    **_BERT, "max_position_embeddings": 322, "pad_token_id": 1, "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
}  # fmt: skip
_GEMMA = {**SMALL, "use_bidirectional_attention": True, "query_pre_attn_scalar": 12}
_ROPES = {
    name: {"rope_type": "default", "rope_theta": base}
    for name, base in (("full_attention", 5e4), ("sliding_attention", 3e3))
}
_NOMIC_MOE: Mapping[str, Any] = {
    "vocab_size": 97, "n_embd": 48, "n_inner": 56, "n_layer": 4, "n_head": 4, "n_positions": 320,
    "layer_norm_epsilon": 1e-5, "rotary_emb_base": 1e4, "pad_token_id": 1,
    "num_experts": 4, "moe_top_k": 2, "moe_every_n_layers": 2,
}  # fmt: skip
_MODERN = {**_BERT, "num_hidden_layers": 5, "local_attention": 48}

ENCODER_CASES: Mapping[str, EncoderCase] = {
    "embeddinggemma": EncoderCase(
        architecture="gemma-embedding",
        config="Gemma3TextConfig",
        arguments={**_GEMMA, "sliding_window": 48, "num_hidden_layers": 7},
        modules={
            **_pooling("mean"),
            "2_Dense/config.json": _dense(48, 72),
            "3_Dense/config.json": _dense(72, 40),
        },
    ),
    "embeddinggemma-odd": EncoderCase(
        architecture="gemma-embedding",
        config="Gemma3TextConfig",
        arguments={**_GEMMA, "sliding_window": 31, "sliding_window_pattern": 2},
    ),
    "bert": EncoderCase(architecture="bert", config="BertConfig", arguments=_BERT),
    "bert-cls": EncoderCase(
        architecture="bert", config="BertConfig", arguments=_BERT, modules=_pooling("cls")
    ),
    "bert-last": EncoderCase(
        architecture="bert",
        config="BertConfig",
        arguments={**_BERT, "num_attention_heads": 3, "layer_norm_eps": 1e-7},
        modules=_pooling("lasttoken"),
    ),
    "bert-rank": EncoderCase(
        architecture="bert", config="BertConfig", arguments={**_BERT, "num_labels": 1}, ranks=True
    ),
    "eurobert": EncoderCase(
        architecture="eurobert",
        config="EuroBertConfig",
        arguments={**SMALL, "rope_parameters": _ROPES["full_attention"]},
    ),
    "eurobert-last": EncoderCase(
        architecture="eurobert",
        config="EuroBertConfig",
        arguments={**SMALL, "num_key_value_heads": 4, "rms_norm_eps": 1e-6},
        modules=_pooling("lasttoken"),
    ),
    "llama-embed": EncoderCase(
        architecture="llama-embed",
        config="LlamaEmbedConfig",
        arguments={
            **SMALL, "rope_parameters": {"rope_type": "default", "rope_theta": 5e3},
            "pooling": "avg", "temperature": 0.02,
        },
    ),
    "gte": EncoderCase(architecture="gte", config="GteConfig", arguments=_BERT),
    "gte-cls": EncoderCase(  # as arctic-embed-m-v2.0
        architecture="gte",
        config="GteConfig",
        arguments={
            **_BERT, "num_attention_heads": 3, "layer_norm_eps": 1e-6, "type_vocab_size": 0,
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e3},
        },
        modules=_pooling("cls"),
    ),
    "jina-v2": EncoderCase(
        architecture="jina-bert-v2", config="JinaBertConfig", arguments=_BERT
    ),
    "jina-v2-cls": EncoderCase(
        architecture="jina-bert-v2",
        config="JinaBertConfig",
        arguments={**_BERT, "num_attention_heads": 6, "layer_norm_eps": 1e-6, "type_vocab_size": 3},
        modules=_pooling("cls"),
    ),
    "jina-v2-code": EncoderCase(
        architecture="jina-bert-v2-code",
        config="JinaBertConfig",
        arguments={**_BERT, "num_attention_heads": 3, "for_code": True},
    ),
    "jina-v3": EncoderCase(
        architecture="jina-bert-v3", config="JinaEmbeddingsV3Config", arguments=_ROBERTA
    ),
    "jina-v3-cls": EncoderCase(
        architecture="jina-bert-v3",
        config="JinaEmbeddingsV3Config",
        arguments={
            **_ROBERTA, "num_attention_heads": 3, "layer_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e3},
        },
        modules=_pooling("cls"),
    ),
    "modernbert": EncoderCase(
        architecture="modern-bert", config="ModernBertConfig", arguments=_MODERN,
        modules=_pooling("cls"),
    ),
    "modernbert-rank": EncoderCase(
        architecture="modern-bert",
        config="ModernBertConfig",
        arguments={
            **_MODERN, "local_attention": 31, "global_attn_every_n_layers": 2,
            "rope_parameters": _ROPES, "classifier_pooling": "mean", "num_labels": 1,
        },
        ranks=True,
    ),
    "modernbert-silu": EncoderCase(  # as granite-embedding-97m-multilingual-r2
        architecture="modern-bert", config="ModernBertConfig",
        arguments={**_MODERN, "hidden_activation": "silu"},
    ),
    "nomic-bert": EncoderCase(architecture="nomic-bert", config="NomicBertConfig", arguments=_BERT),
    "nomic-bert-cls": EncoderCase(
        architecture="nomic-bert",
        config="NomicBertConfig",
        arguments={
            **_BERT, "num_attention_heads": 3, "layer_norm_eps": 1e-6, "type_vocab_size": 3,
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e3},
        },
        modules=_pooling("cls"),
    ),
    "nomic-moe": EncoderCase(
        architecture="nomic-bert-moe", config="NomicMoeConfig", arguments=_NOMIC_MOE
    ),
    "nomic-moe-third": EncoderCase(
        architecture="nomic-bert-moe",
        config="NomicMoeConfig",
        arguments={
            **_NOMIC_MOE, "n_head": 3, "layer_norm_epsilon": 1e-6, "rotary_emb_base": 5e3,
            "moe_top_k": 1, "moe_every_n_layers": 3, "n_layer": 5,
        },
        modules=_pooling("cls"),
    ),
    "qwen3-reranker": EncoderCase(
        architecture="qwen3-reranker",
        config="Qwen3Config",
        arguments={**SMALL, "tie_word_embeddings": True},
        modules=_answers(61, 5),
    ),
    "qwen3-reranker-untied": EncoderCase(
        architecture="qwen3-reranker",
        config="Qwen3Config",
        arguments={**SMALL, "attention_bias": True},
        modules=_answers(3, 90),
    ),
    "qwen3-reranker-label": EncoderCase(
        architecture="qwen3-reranker",
        config="Qwen3Config",
        arguments={**SMALL, "num_labels": 1},
        ranks=True,
    ),
    "xlm-roberta": EncoderCase(
        architecture="xlm-roberta", config="XLMRobertaConfig", arguments=_ROBERTA
    ),
    "xlm-roberta-cls": EncoderCase(  # as bge-m3 and arctic-embed-l-v2.0
        architecture="xlm-roberta",
        config="XLMRobertaConfig",
        arguments={**_ROBERTA, "num_attention_heads": 3},
        modules=_pooling("cls"),
    ),
    "xlm-roberta-rank": EncoderCase(
        architecture="xlm-roberta",
        config="XLMRobertaConfig",
        arguments={**_ROBERTA, "num_labels": 1},
        ranks=True,
    ),
    "roberta": EncoderCase(
        architecture="xlm-roberta", config="RobertaConfig", arguments=_ROBERTA,
        modules=_pooling("cls"),
    ),
}  # fmt: skip

LENGTH = 304
# Tokens of each text; the longest one reaches across all windows.
COUNTS = (1, 37, 300)
TEXTS = [np.random.default_rng(count).integers(3, 96, count).tolist() for count in COUNTS]


# The architectures with token types.
HAVE_TYPES = ("bert", "jina-bert-v2", "jina-bert-v2-code", "nomic-bert")


def token_types(case: EncoderCase, count: int) -> list[int]:
    """The types of a pair's tokens: the first text has a third; 0 where all are alike."""
    first = count // 3 if case.architecture in HAVE_TYPES else count
    return [0] * first + [1] * (count - first)


def write_folder(
    files: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], folder: Path
) -> None:
    """A folder with these JSON files and random tensors; modules have their own folders."""
    for path, data in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(data), encoding="utf-8")
    tensors: dict[str, dict[str, Array]] = {}
    for name, values in random_tensors(shapes).items():
        module, _, rest = name.partition(".")
        place = (module, rest) if f"{module}/config.json" in files else (".", name)
        tensors.setdefault(place[0], {})[place[1]] = values
    for module, parts in tensors.items():
        save_file(parts, folder / module / "model.safetensors", metadata={"format": "pt"})


FILE = Path(__file__).parents[3] / "golden" / "encoders.npz"


@dataclass(frozen=True, kw_only=True)
class EncoderRecording:
    """What transformers saved and computed for a case.

    files    the JSON files of the folder, by path
    shapes   the shapes of the tensors in the folder
    vectors  of TEXTS, f32 (B, W)
    """

    files: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]]
    vectors: NDArray[np.float32]

    def write(self, folder: Path) -> None:
        """The Hugging Face folder, without a tokenizer."""
        write_folder(self.files, self.shapes, folder)


@functools.cache
def _file() -> Mapping[str, Array]:
    with np.load(FILE) as file:
        return dict(file)


def recorded_encoder(name: str) -> EncoderRecording:
    """The recording of a case."""
    folder = json.loads(str(_file()[f"{name}.folder"]))
    shapes = {tensor: tuple(shape) for tensor, shape in folder["shapes"].items()}
    vectors = _file()[f"{name}.vectors"]
    return EncoderRecording(files=folder["files"], shapes=shapes, vectors=vectors)


def write_recordings(recordings: Mapping[str, EncoderRecording]) -> None:
    """Write the file."""
    arrays: dict[str, Any] = {}
    for name, one in recordings.items():
        folder = {"files": one.files, "shapes": one.shapes}
        arrays[f"{name}.folder"] = np.array(json.dumps(folder))
        arrays[f"{name}.vectors"] = one.vectors
    np.savez_compressed(FILE, **arrays)
