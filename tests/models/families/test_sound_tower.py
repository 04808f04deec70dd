"""Gemma 4's tower for sound in NumPy against transformers; record_sound_tower.py records it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearthd.models.config import ConfigError
from hearthd.models.decoder.config.config_json import FEATURE_EXTRACTOR
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from hearthd.models.families import gemma4_unified
from hearthd.models.towers.gemma4a import SoundTowerConfig, Tower
from hearthd.runtime.media.sound_features import sound_features, sound_windows
from tests.baker import small_gemma4_unified

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = Path(__file__).parents[2] / "golden" / "sound_tower.npz"
CONFIG = SoundTowerConfig(
    sound_mels=16, sound_channels=(16, 8), sound_layers=2, sound_hidden=16, sound_heads=2,
    sound_context=12, sound_kernel=5, sound_cap=50.0, sound_residual=0.5, sound_norm_eps=1e-6,
    sound_clips=True, sound_width=12,
)  # fmt: skip


@pytest.fixture(scope="module")
def golden() -> Mapping[str, Any]:
    with np.load(FILE) as arrays:
        return dict(arrays)


def weight(golden: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> Any:
    names = {name, name.replace(".weight", ".linear.weight"), f"{name}.weight"}
    (found,) = (golden[f"weights.{each}"] for each in names if f"weights.{each}" in golden)
    return (np.logaddexp(0, found) if "per_dim_scale" in name else found).reshape(shape)


def test_rows_are_those_of_transformers(golden: Mapping[str, Any]) -> None:
    """Of a sound that ends within the frames, with bounds that clip."""
    tower = Tower(CONFIG)
    parameters = tower.parameters()
    types = {
        name: TensorType(golden[name].shape, DType.named(dtype))
        for name, dtype in (("frames", "f32"), ("count", "i32"))
    }
    graph = trace("sound", lambda *x: (tower(*x),), types, parameters=parameters)
    weights = {name: weight(golden, name, x.shape) for name, x in parameters.items()}
    (rows,) = evaluate(graph, [golden["frames"], golden["count"]], weights)
    assert np.abs(rows[: len(golden["rows"])] - golden["rows"]).max() < 1e-5


def test_features_are_those_of_transformers(golden: Mapping[str, Any]) -> None:
    features, count = sound_features(golden["sound"], mels=128)
    assert count == golden["feature_count"] < len(features)
    assert np.abs(features - golden["features"]).max() < 1e-5


def test_samples_are_cut_into_frames_and_the_last_one_is_padded() -> None:
    features = small_gemma4_unified.FEATURE_EXTRACTOR
    metadata = {FEATURE_EXTRACTOR: features}
    settings = gemma4_unified.ARCHITECTURE.sound_input(small_gemma4_unified.CONFIG, metadata)
    assert settings is not None
    assert settings.max_samples == 30 * features["sampling_rate"]
    sound = np.arange(1, 1301, dtype=np.float32)
    (frames,) = sound_windows(sound, settings)
    assert frames.shape == (3, features["feature_size"])
    assert np.array_equal(frames.ravel(), np.pad(sound, (0, 620)))
    changed = {FEATURE_EXTRACTOR: {**features, "audio_samples_per_token": 320}}
    with pytest.raises(ConfigError, match=r"feature_extractor: .*audio_samples_per_token = 320"):
        gemma4_unified.ARCHITECTURE.sound_input(small_gemma4_unified.CONFIG, changed)
