"""Record adapters that llama.cpp's converter writes, in tests/golden/gguf_adapters/.

    python -m tests.golden.record_gguf_adapters PYTHON convert_lora_to_gguf.py

Recorded with llama.cpp as in llama-cpp-python 0.3.36, torch 2.13.0 and transformers 5.24.0, which
PYTHON has and the tests do not need. The adapters come from tests/models/lora/lora_cases.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from hearthd.baker.adapters.adapter import write_adapter
from hearthd.bundle.lora.adapter_settings import AdapterSettings
from hearthd.models.catalog import ARCHITECTURES
from tests.models.lora.lora_cases import CASES, LoraCase
from tests.models.text_sizes import text_sizes

FOLDER = Path(__file__).parent / "gguf_adapters"
_CLASSES = {"gemma3": "Gemma3ForCausalLM", "llama": "LlamaForCausalLM"}


def write_folder(folder: Path, case: LoraCase) -> None:
    """Write a case's adapter as PEFT does, and a config.json of its base beside it."""
    settings = AdapterSettings(
        rank=case.lora.rank, alpha=case.lora.alpha, projections=case.lora.projections
    )
    architecture, config = ARCHITECTURES[case.architecture], case.config
    write_adapter(folder, settings, case.initial(), architecture, config)
    base = {
        "architectures": [_CLASSES[case.architecture]],
        **text_sizes(config),
        "rms_norm_eps": config.norm_eps,
        "rope_theta": config.rope_base,
        "sliding_window": 4,
    }
    (folder / "config.json").write_text(json.dumps(base))


def main(python: str, converter: str) -> None:
    """Write the files."""
    for name, type_ in (("gemma3", "f32"), ("gemma3", "q8_0"), ("llama", "f32")):
        with tempfile.TemporaryDirectory() as folder:
            write_folder(Path(folder), CASES[name])
            out = FOLDER / f"{name}-{type_}.gguf"
            options = ["--base", folder, "--outtype", type_, "--outfile", str(out), folder]
            subprocess.run([python, converter, *options], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
