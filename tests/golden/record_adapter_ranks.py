"""Record an adapter of PEFT whose projections have ranks of their own, in gguf_adapters/.

    python -m tests.golden.record_adapter_ranks convert_lora_to_gguf.py

Recorded with llama.cpp as in llama-cpp-python 0.3.36, PEFT 0.21.2, torch 2.13.0 and transformers
5.24.0. llama-ranks.gguf is the adapter, and llama-ranks.npz has the terms that PEFT adds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

import numpy as np
import peft
import torch

from tests.golden.record_gguf_adapters import FOLDER
from tests.golden.record_lora_peft import base_model
from tests.models.lora.lora_cases import CASES, normal

CONFIG = {"r": 4, "rank_pattern": {"q_proj": 2, "down_proj": 6}, "lora_alpha": 10}
PREFIX = "base_model.model.model."


def main(converter: str) -> None:
    """Write both files."""
    base = base_model(CASES["llama"]).float()
    modules = ["q_proj", "v_proj", "o_proj", "down_proj"]
    config = peft.LoraConfig(**CONFIG, target_modules=modules)
    model = peft.get_peft_model(base, config)
    terms = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            weight.data = torch.tensor(normal(name, tuple(weight.shape), 0.2))
    for name, module in model.named_modules():
        if isinstance(module, peft.tuners.lora.Linear):
            delta = module.get_delta_weight("default").detach().numpy()
            terms[name.removeprefix(PREFIX) + ".weight"] = delta
    with tempfile.TemporaryDirectory() as folder:
        base.config.architectures = ["LlamaForCausalLM"]
        base.config.save_pretrained(folder)
        model.save_pretrained(folder)
        out = FOLDER / "llama-ranks.gguf"
        options = ["--base", folder, "--outtype", "f32", "--outfile", str(out), folder]
        subprocess.run([sys.executable, converter, *options], check=True)
    np.savez_compressed(FOLDER / "llama-ranks.npz", **terms)


if __name__ == "__main__":
    main(sys.argv[1])
