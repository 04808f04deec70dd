"""Ministral 3 as it is published: the text model of one that also reads images."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from hearthd.baker.pipeline.weights_config import identify, model_config
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.catalog import ARCHITECTURES
from tests.models.families import ours
from tests.models.families.cases import random_tensors
from tests.models.families.family_recording import recorded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.models.families.family_recording import Recording

NAME = "mistral3"
RECORDING = recorded("mistral3-mistral3")
HEAD = "lm_head.weight"


def write_published(
    folder: Path, recording: Recording, *, prefix: str, head: str, tied: bool | None
) -> None:
    """The folder with a tower, with its own output head, and `tied` beside the text model."""
    text = {key: value for key, value in recording.config.items() if key != "tie_word_embeddings"}
    config: dict[str, Any] = {
        "model_type": NAME, "text_config": text, "vision_config": {"model_type": "pixtral"},
        "image_token_index": 10, "multimodal_projector_bias": False, "spatial_merge_size": 2,
        "projector_hidden_act": "gelu", "vision_feature_layer": -1, "tie_word_embeddings": tied,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = random_tensors(recording.shapes)
    tensors = {name.replace("model.", prefix): array for name, array in tensors.items()}
    tensors[head] = tensors[f"{prefix}embed_tokens.weight"] * np.float32(2)
    tensors["vision_tower.patch_conv.weight"] = np.ones((2, 2), np.float32)
    save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize("tied", [False, None])
@pytest.mark.parametrize(
    ("prefix", "head"),
    [("model.language_model.", HEAD), ("language_model.model.", f"language_model.{HEAD}")],
)
def test_the_text_model_is_read_with_its_own_head(
    prefix: str, head: str, tied: bool | None, tmp_path: Path
) -> None:
    """The head is also read if the configuration says that the table is, as in transformers."""
    write_published(tmp_path, RECORDING, prefix=prefix, head=head, tied=tied)
    source = open_weights(tmp_path)
    config = model_config(source, ARCHITECTURES[NAME])
    _, actual = ours.parameters_of(source, NAME, config, tmp_path)
    head_rows, table = (np.array(actual[name]) for name in (HEAD, "embed_tokens.weight"))
    np.testing.assert_array_equal(head_rows, table * np.float32(2))


def test_mistral_4_is_told_by_its_text_model(tmp_path: Path) -> None:
    """Its folder has the model type of Mistral 3."""
    recording = recorded("mistral4-mistral4")
    write_published(tmp_path, recording, prefix="model.language_model.", head=HEAD, tied=None)
    assert identify(open_weights(tmp_path), None).architecture == "mistral4"


def test_queries_do_not_grow_in_a_model_without_the_key() -> None:
    """Mistral Small 3.1, of the same model type."""
    rope = {"rope_type": "default", "rope_theta": 1e6}
    text = {**RECORDING.config, "rope_parameters": rope}
    config: Any = ARCHITECTURES[NAME].from_hugging_face({"model_type": NAME, "text_config": text})
    assert config.query_growth is None
    assert config.rope_base == 1e6
