"""Record the logits of a tiny Qwen3.5 with an adapter, in peft_adapter/hybrid.npy.

    python -m tests.golden.record_peft_hybrid

Recorded with torch 2.13.0, transformers 5.24.0 and PEFT 0.21.2: transformers reads the folder of
tests/baker/adapters/hybrid_case.py, PEFT its adapter, and both compute in f64. They stand in for
PEFT where it is not installed; where it is, a test compares them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import peft
import torch
import transformers

from tests.baker.adapters.hybrid_case import LOGITS, PROMPT, write_hybrid

if TYPE_CHECKING:
    from numpy.typing import NDArray


def hybrid_logits(folder: Path) -> NDArray[np.float32]:
    """The logits f32 (V,) after the prompt."""
    config = transformers.Qwen3_5TextConfig.from_pretrained(folder / "model")
    base: Any = transformers.Qwen3_5ForCausalLM.from_pretrained(
        folder / "model", config=config, dtype=torch.float64
    )
    model = peft.PeftModel.from_pretrained(base, str(folder / "adapter")).double()
    with torch.no_grad():
        row = model(torch.tensor(PROMPT)[None]).logits[0, -1]
    return np.asarray(row.numpy().astype(np.float32))


def main() -> None:
    """Write the file."""
    with tempfile.TemporaryDirectory() as name:
        write_hybrid(Path(name))
        np.save(LOGITS, hybrid_logits(Path(name)))


if __name__ == "__main__":
    main()
