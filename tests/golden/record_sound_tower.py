"""Record what transformers computes with a small tower for sound of Gemma 4, and its features.

pip install -e ".[families]"
python -m tests.golden.record_sound_tower
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.models.gemma4.modeling_gemma4 import Gemma4AudioModel

FILE = Path(__file__).with_name("sound_tower.npz")
_FRAMES, _INSIDE, _MELS = 60, 46, 16
_SAMPLES = 8100


def main() -> None:
    """Write weights, a spectrogram, rows, a sound and its features."""
    torch.manual_seed(0)
    config = transformers.Gemma4AudioConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, output_proj_dims=12,
        subsampling_conv_channels=[_MELS, 8],
    )  # fmt: skip
    model = Gemma4AudioModel(config).eval()
    for name, parameter in model.named_parameters():
        parameter.data = 0.2 * torch.randn_like(parameter) + ("norm" in name)
    for name, buffer in model.named_buffers():
        if name.endswith(("_min", "_max")):
            buffer.fill_(-1.5 if name.endswith("_min") else 1.5)
    rng = np.random.default_rng(0)
    frames = rng.standard_normal((_FRAMES, _MELS)).astype(np.float32)
    inside = np.arange(_FRAMES) < _INSIDE
    frames[~inside] = 0.0
    with torch.no_grad():
        result = model(torch.tensor(frames)[None], torch.tensor(inside)[None])
    sound = (0.1 * rng.standard_normal(_SAMPLES)).astype(np.float32)
    features = transformers.Gemma4AudioFeatureExtractor()([sound], return_tensors="np")
    arrays: dict[str, Any] = {
        "frames": frames,
        "count": np.array([_INSIDE], np.int32),
        "rows": result.last_hidden_state[0][result.attention_mask[0]].numpy(),
        "sound": sound,
        "features": features["input_features"][0],
        "feature_count": features["input_features_mask"][0].sum(),
    }
    weights = {f"weights.{name}": value.numpy() for name, value in model.state_dict().items()}
    np.savez_compressed(FILE, **arrays, **weights)


if __name__ == "__main__":
    main()
