"""What transformers computes with the encoders of encoder_cases.py."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
import transformers

from hearthd.baker.weights.safetensors import SafetensorsSource
from tests.models.families.encoders.encoder_cases import (
    HAVE_TYPES,
    TEXTS,
    EncoderRecording,
    token_types,
    write_folder,
)
from tests.models.families.encoders.jina_bert_torch import JinaBertConfig, JinaBertModel
from tests.models.families.encoders.llama_embed_torch import LlamaEmbedConfig, LlamaEmbedModel
from tests.models.families.encoders.nomic_moe_torch import NomicMoeConfig, NomicMoeModel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tests.models.families.encoders.encoder_cases import EncoderCase

transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()
# Models that transformers does not have.
_OURS: Mapping[str, tuple[Any, Any]] = {
    "JinaBertConfig": (JinaBertConfig, JinaBertModel),
    "LlamaEmbedConfig": (LlamaEmbedConfig, LlamaEmbedModel),
    "NomicMoeConfig": (NomicMoeConfig, NomicMoeModel),
}


def record(case: EncoderCase, folder: Path) -> EncoderRecording:
    """Save the case's model with random weights; what is in the folder, and what it computes."""
    if case.config in _OURS:
        config_class, model_class = _OURS[case.config]
        model_class(config_class(**case.arguments)).save_pretrained(folder)
    else:
        config = getattr(transformers, case.config)(**case.arguments)
        _class(case).from_config(config).save_pretrained(folder)
    source = SafetensorsSource(folder)
    shapes = {name: source.shape(name) for name in source.names()}
    for name in case.dense:
        module = case.modules[f"{name}/config.json"]
        shapes[f"{name}.linear.weight"] = (module["out_features"], module["in_features"])
    saved = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    files = {"config.json": saved, **case.modules}
    write_folder(files, shapes, folder)
    return EncoderRecording(files=files, shapes=shapes, vectors=_vectors(case, folder))


def _vectors(case: EncoderCase, folder: Path) -> NDArray[np.float32]:
    """The vector or score of each text alone: f32 (B, W)."""
    model = _class(case).from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    rows = []
    for text in TEXTS:
        inputs = {"input_ids": torch.tensor([text])}
        if case.architecture in HAVE_TYPES:
            inputs["token_type_ids"] = torch.tensor([token_types(case, len(text))])
        with torch.no_grad():
            out: Any = model.eval()(**inputs)
        if case.ranks:
            rows.append(out.logits[0])
        elif case.answers:
            yes, no = out.logits[0, -1, list(case.answers)]
            rows.append((yes - no)[None])
        else:
            rows.append(_pooled(case, out.last_hidden_state[0]))
    x = torch.stack(rows)
    source = SafetensorsSource(folder)
    for name in case.dense:
        x = x @ torch.from_numpy(source.read(f"{name}.linear.weight")).T
    vectors: NDArray[np.float32] = x.numpy()
    return vectors


def _pooled(case: EncoderCase, states: torch.Tensor) -> torch.Tensor:
    if case.pooling == "mean":
        return states.mean(0)
    return states[{"cls": 0, "lasttoken": -1}[case.pooling]]


def _class(case: EncoderCase) -> Any:
    if case.config in _OURS:
        return _OURS[case.config][1]
    if case.ranks:
        return transformers.AutoModelForSequenceClassification
    return transformers.AutoModelForCausalLM if case.answers else transformers.AutoModel
