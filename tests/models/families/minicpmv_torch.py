"""MiniCPM-V in PyTorch, by modeling_minicpmv.py and resampler.py of openbmb/MiniCPM-V-2_6.

transformers has its parts alone. The text model is Qwen2, Llama or Qwen3.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import torch
import transformers
from safetensors.numpy import save_file
from torch import nn
from torch.nn.functional import layer_norm, linear
from transformers.models.siglip.modeling_siglip import SiglipVisionModel

from tests.models.families.cases import SMALL, random_tensors
from tests.models.families.media_recording import ANSWER, Recorded, best_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

MODEL_TYPE = "minicpmv"
HEAD_WIDTH = 128
_TEXT, _TOWER, _RESAMPLER = "llm.", "vpm.", "resampler."
_NORMS = ("ln_q", "ln_kv", "ln_post")
_TEXT_MODELS: Mapping[float, str] = {2.6: "Qwen2", 4.0: "Llama", 4.5: "Qwen3"}


def _text(config: Mapping[str, Any]) -> Any:
    name = _TEXT_MODELS[config["version"]]
    settings = getattr(transformers, f"{name}Config")(**copy.deepcopy(config))  # it adds to them
    return getattr(transformers, f"{name}ForCausalLM")(settings).eval()


def _tower(config: Mapping[str, Any]) -> Any:
    settings = transformers.SiglipVisionConfig(**config["vision_config"], vision_use_head=False)
    settings._attn_implementation = "eager"
    return SiglipVisionModel(settings).eval()


class MiniCpmV:
    """A model of these tensors."""

    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
        self.config, self.text, self.tower = config, _text(config), _tower(config)
        for module, prefix in ((self.text, _TEXT), (self.tower, _TOWER)):
            own = {name.removeprefix(prefix): tensors[name] for name in tensors if prefix in name}
            module.load_state_dict(own)
        self.weights = {
            name.removeprefix(_RESAMPLER): tensors[name] for name in tensors if _RESAMPLER in name
        }

    def logits(self, tokens: Sequence[int]) -> Any:
        """After each token: (N, V)."""
        with torch.no_grad():
            return self.text(torch.tensor([list(tokens)])).logits[0]

    def rows(self, pixels: NDArray[np.uint8]) -> torch.Tensor:
        """The rows of embeddings of a part of an image, u8 (H, W, 3): (Q, E)."""
        patch, table = self.tower.embeddings.patch_size, self.tower.embeddings.position_embedding
        normalized = (torch.tensor(pixels) / 255 - 0.5) / 0.5
        with torch.no_grad():
            h = self.tower.embeddings.patch_embedding(normalized.permute(2, 0, 1)[None])
            rows, columns = pixels.shape[0] // patch, pixels.shape[1] // patch
            side = round(table.num_embeddings**0.5)
            down, across = (torch.arange(count) * side // count for count in (rows, columns))
            entries = (down[:, None] * side + across).flatten()
            h = h.flatten(2).transpose(1, 2) + table(entries)
            h = self.tower.encoder(inputs_embeds=h).last_hidden_state
            return self._resampled(self.tower.post_layernorm(h)[0], rows, columns)

    def _resampled(self, h: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
        width = len(self.weights["proj"])
        attention = nn.MultiheadAttention(width, width // HEAD_WIDTH).eval()
        own = {name: self.weights[f"attn.{name}"] for name in attention.state_dict()}
        attention.load_state_dict(own)
        x = self._norm(linear(h, self.weights["kv_proj.weight"]), "ln_kv")
        positions = _sines_of_places(rows, columns, width)
        query = self._norm(self.weights["query"], "ln_q")
        mixed = attention(query[:, None], (x + positions)[:, None], x[:, None])[0][:, 0]
        return self._norm(mixed, "ln_post") @ self.weights["proj"]

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        weight, bias = (self.weights[f"{name}.{part}"] for part in ("weight", "bias"))
        return layer_norm(x, x.shape[-1:], weight, bias, 1e-6)

    def recorded(
        self, tokens: Sequence[int], image: int, images: Sequence[NDArray[np.uint8]]
    ) -> Recorded:
        """What follows tokens with the rows of images in the places of a token `image`."""
        rows = torch.cat([self.rows(pixels) for pixels in images])
        ids = torch.tensor([list(tokens)])
        with torch.no_grad():
            logits = self.text(inputs_embeds=self._embedded(ids, image, rows)).logits[0, -1]
        inputs = {"input_ids": ids, "image": image, "images": images}
        return Recorded(rows.numpy(), logits.numpy(), best_tokens(self, inputs, ANSWER))

    def generate(
        self, *, input_ids: Any, image: int, images: Sequence[NDArray[np.uint8]], **options: Any
    ) -> Any:
        """As transformers' models do it, with the images in the places of a token `image`."""
        rows = torch.cat([self.rows(pixels) for pixels in images])
        embedded, mask = self._embedded(input_ids, image, rows), torch.ones_like(input_ids)
        return self.text.generate(inputs_embeds=embedded, attention_mask=mask, **options)

    def _embedded(self, ids: torch.Tensor, image: int, rows: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            embedded: torch.Tensor = self.text.get_input_embeddings()(ids)
        embedded[ids == image] = rows
        return embedded


def _sines_of_places(rows: int, columns: int, width: int) -> torch.Tensor:
    """Of each place, a row after the other: by its column, then by its row."""
    rates = 10_000 ** -(torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    waves = []
    for count in (columns, rows):
        angles = torch.arange(count)[:, None] * rates
        waves.append(torch.cat([angles.sin(), angles.cos()], dim=1))
    across, down = waves
    return torch.cat([across.repeat(rows, 1), down.repeat_interleave(columns, 0)], dim=1).float()


def save(arguments: Mapping[str, Any], folder: Path) -> None:
    """Write config.json and random tensors."""
    config = {**SMALL, **arguments, "model_type": MODEL_TYPE, "architectures": ["MiniCPMV"]}
    text, tower, width = _text(config), _tower(config), config["hidden_size"]
    norms = {
        f"{name}.{part}" for name in ("ln_q", "ln_kv", "ln_post") for part in ("weight", "bias")
    }
    attention = nn.MultiheadAttention(width, width // HEAD_WIDTH).state_dict()
    parts = {
        "query": (config["query_num"], width), "proj": (width, width),
        "kv_proj.weight": (width, config["vision_config"]["hidden_size"]),
        **dict.fromkeys(norms, (width,)),
        **{f"attn.{name}": tuple(values.shape) for name, values in attention.items()},
    }  # fmt: skip
    shapes = {f"{_RESAMPLER}{name}": shape for name, shape in parts.items()}
    for module, prefix in ((text, _TEXT), (tower, _TOWER)):
        shapes |= {f"{prefix}{name}": tuple(x.shape) for name, x in module.state_dict().items()}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(random_tensors(shapes), folder / "model.safetensors", {"format": "pt"})


model = MiniCpmV
