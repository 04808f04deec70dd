"""Folders of Qwen2.5-Omni as published: with the parts that speak, and one file of settings."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.config import ConfigError
from tests.models.families import ours
from tests.models.families.family_recording import recorded, write_folder
from tests.models.families.whisper_sounds import EXTRACTOR, OMNI_CASE

if TYPE_CHECKING:
    from pathlib import Path

ARCHITECTURE = ARCHITECTURES["qwen25omni"]
SETTINGS = {
    **EXTRACTOR, "image_mean": [0.48145466, 0.4578275, 0.40821073], "patch_size": 14,
    "image_std": [0.26862954, 0.26130258, 0.27577711], "merge_size": 2, "min_pixels": 3136,
    "max_pixels": 12845056, "temporal_patch_size": 2,
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5OmniProcessor",
}  # fmt: skip


def published(folder: Path) -> dict[str, Any]:
    """Write a folder of the whole model; returns the configuration of the thinker."""
    write_folder(recorded(OMNI_CASE), folder)
    path = folder / "config.json"
    thinker: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    thinker["text_config"] |= {"init_std": 0.02}
    config = {
        "model_type": "qwen2_5_omni", "architectures": ["Qwen2_5OmniModel"],
        "enable_audio_output": True, "enable_talker": True, "thinker_config": thinker,
        "talker_config": {"hidden_size": 8}, "token2wav_config": {"dit_config": {}},
    }  # fmt: skip
    path.write_text(json.dumps(config), encoding="utf-8")
    tensors = load_file(folder / "model.safetensors")
    renamed = {f"thinker.{name}": values.copy() for name, values in tensors.items()}
    renamed |= {name: np.zeros(2, np.float32) for name in ("talker.a.weight", "token2wav.b.weight")}
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "preprocessor_config.json").write_text(json.dumps(SETTINGS), encoding="utf-8")
    return thinker


def test_the_thinker_of_the_whole_model_is_read(tmp_path: Path) -> None:
    for name in ("alone", "whole"):
        (tmp_path / name).mkdir()
    write_folder(recorded(OMNI_CASE), tmp_path / "alone")
    published(tmp_path / "whole")
    alone, whole = (open_weights(tmp_path / name) for name in ("alone", "whole"))
    config: Any = ours.config_of(alone, ARCHITECTURE.name)
    assert ours.config_of(whole, ARCHITECTURE.name) == config
    _, theirs = ours.parameters_of(alone, ARCHITECTURE.name, config, tmp_path / "alone")
    _, own = ours.parameters_of(whole, ARCHITECTURE.name, config, tmp_path / "whole")
    assert theirs.keys() == own.keys()
    assert all(np.array_equal(array, own[name]) for name, array in theirs.items())


def test_a_head_is_read_where_config_json_does_not_say_whether_it_is_tied(tmp_path: Path) -> None:
    thinker = published(tmp_path)
    for section in (thinker, thinker["text_config"]):
        del section["tie_word_embeddings"]
    (tmp_path / "config.json").write_text(json.dumps(thinker), encoding="utf-8")
    config: Any = ours.config_of(open_weights(tmp_path), ARCHITECTURE.name)
    assert not config.tied


def test_images_and_sound_have_their_settings_in_one_file(tmp_path: Path) -> None:
    published(tmp_path)
    source = open_weights(tmp_path)
    config: Any = ours.config_of(source, ARCHITECTURE.name)
    images: Any = ARCHITECTURE.image_input(config, source.metadata())
    sound = ARCHITECTURE.sound_input(config, source.metadata())
    assert (images.min_pixels, images.placeholder) == (3136, "<|IMAGE|>")
    assert sound is not None
    assert (sound.max_seconds, sound.placeholder) == (300.0, "<|AUDIO|>")
    changed = {**SETTINGS, "hop_length": 161}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(ConfigError, match="feature_extractor: hop_length = 161"):
        ARCHITECTURE.sound_input(config, open_weights(tmp_path).metadata())
