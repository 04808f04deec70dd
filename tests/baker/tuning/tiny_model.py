"""A tiny Gemma 3 of bytes in a Hugging Face folder, and examples for it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import save_file

from examples.train_tiny_gemma import END, hugging_face_config, tokenizer
from hearthd.models.families.gemma3 import ARCHITECTURE, Config
from tests.models.text_sizes import text_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hearthd.baker.tuning.tune_request import TuneRequest

CONFIG = Config(
    layers=1, hidden=16, ffn=16, heads=1, kv_heads=1, head_dim=16, max_context=256,
    vocab_size=END + 1, query_scale=0.25, windows=(None,),
)  # fmt: skip
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.role == 'assistant' %}<eos>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)


def write_model(folder: Path, config: Config = CONFIG) -> Path:
    """Write the model, with random weights; returns its folder."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    tensors = {}
    for name, tensor in ARCHITECTURE.model(config).parameters().items():
        stored = ARCHITECTURE.tensors.find(config, name, (), gguf=False)
        values = rng.normal(size=tensor.shape) / np.sqrt(tensor.shape[-1])
        tensors[stored.name] = values.astype(np.float32)
    save_file(tensors, folder / "model.safetensors")
    settings: dict[str, Any] = hugging_face_config() | {
        **text_sizes(config),
        "query_pre_attn_scalar": 16,
        "layer_types": ["full_attention"],
    }
    del settings["sliding_window_pattern"]
    (folder / "config.json").write_text(json.dumps(settings))
    tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def write_lines(path: Path, lines: Sequence[object]) -> Path:
    """Write JSON lines; returns the path."""
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def request(folder: Path, out: str = "adapter", **options: Any) -> TuneRequest:
    """Tune the model in `folder` on the examples beside it, one short matrix."""
    from hearthd.baker.tuning.tune_request import TuneRequest

    usual = {"rank": 2, "targets": ("q_proj",), "batch": 2, "accumulate": 2, "learning_rate": 0.05}
    return TuneRequest(
        model="gemma3",
        weights=folder / "model",
        data=folder / "data.jsonl",
        out=folder / out,
        **{**usual, **options},
    )
