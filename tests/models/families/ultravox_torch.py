"""Ultravox in PyTorch, by ultravox_model.py of fixie-ai/ultravox: transformers has its parts alone.

In shape comments `T` is frames, `S` hidden states, `E` the width of the encoder.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
import transformers
from safetensors.numpy import save_file
from torch.nn.functional import gelu, linear, pad, rms_norm, silu
from transformers.models.whisper.modeling_whisper import WhisperEncoder

from tests.models.families.cases import SMALL, random_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MODEL_TYPE = "ultravox"
_TEXT, _TOWER, _PROJECTOR = "language_model.", "audio_tower.", "multi_modal_projector."


def _text_config(config: Mapping[str, Any]) -> Any:
    return transformers.LlamaConfig(**config["text_config"])


def _tower(config: Mapping[str, Any]) -> Any:
    settings = transformers.WhisperConfig(**config["audio_config"])
    settings._attn_implementation = "eager"
    return WhisperEncoder(settings)


class Ultravox:
    """A model of these tensors."""

    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
        self.text = transformers.LlamaForCausalLM(_text_config(config)).eval()
        self.tower, self.stacked = _tower(config).eval(), config["stack_factor"]
        for module, prefix in ((self.text, _TEXT), (self.tower, _TOWER)):
            own = {name.removeprefix(prefix): tensors[name] for name in tensors if prefix in name}
            module.load_state_dict(own)
        self.weights = {
            name.removeprefix(_PROJECTOR).removesuffix(".weight"): tensors[name]
            for name in tensors
            if _PROJECTOR in name
        }

    def logits(self, tokens: Sequence[int]) -> Any:
        """After each token: (N, V)."""
        with torch.no_grad():
            return self.text(torch.tensor([list(tokens)])).logits[0]

    def rows(self, features: torch.Tensor) -> torch.Tensor:
        """The rows of embeddings of a window's features (mels, T), without padding."""
        encoder = self.tower
        with torch.no_grad():
            h = gelu(encoder.conv2(gelu(encoder.conv1(features[None])))).transpose(1, 2)
            h = h + encoder.embed_positions.weight[: h.shape[1]]
            for layer in encoder.layers:
                result = layer(h, None)
                h = result[0] if isinstance(result, tuple) else result
            return self._projected(encoder.layer_norm(h)[0])

    def _projected(self, h: torch.Tensor) -> torch.Tensor:
        """Hidden states (S, E), each `stacked` side by side; zeros follow the last ones."""
        stacked = pad(h, (0, 0, 0, -len(h) % self.stacked)).reshape(-1, self.stacked * h.shape[1])
        both = linear(self._norm(stacked, "ln_pre"), self.weights["linear_1"])
        x, gate = both.chunk(2, -1)
        return linear(self._norm(silu(gate) * x, "ln_mid"), self.weights["linear_2"])

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return rms_norm(x, x.shape[-1:], self.weights[name], 1e-6)


def save(arguments: Mapping[str, Any], folder: Path) -> None:
    """Write config.json and random tensors."""
    config = {**arguments, "text_config": {**SMALL, **arguments["text_config"]}}
    text, tower = _text_config(config), _tower(config)
    inner, width = config["hidden_size"], tower.config.d_model * config["stack_factor"]
    parts = {
        "ln_pre": (width,), "linear_1": (inner, width), "ln_mid": (inner // 2,),
        "linear_2": (text.hidden_size, inner // 2),
    }  # fmt: skip
    shapes = {f"{_PROJECTOR}{name}.weight": shape for name, shape in parts.items()}
    for module, prefix in ((transformers.LlamaForCausalLM(text), _TEXT), (tower, _TOWER)):
        shapes |= {f"{prefix}{name}": tuple(x.shape) for name, x in module.state_dict().items()}
    names = {"model_type": MODEL_TYPE, "architectures": ["UltravoxModel"]}
    (folder / "config.json").write_text(json.dumps({**names, **config}), encoding="utf-8")
    save_file(random_tensors(shapes), folder / "model.safetensors", {"format": "pt"})


model = Ultravox
