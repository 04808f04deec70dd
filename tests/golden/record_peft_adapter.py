"""Record an adapter that PEFT writes and merges, and logits, in tests/golden/peft_adapter/.

    python -m tests.golden.record_peft_adapter

Recorded with torch 2.13.0, transformers 5.23.0 and PEFT 0.21.2, which the tests do not need. The
folder has the two files of PEFT's `save_pretrained` for the adapter of a case of
tests/models/lora/lora_cases.py, and the matrices of the model after `merge_and_unload`, by the
names of Hugging Face. places.npz has the logits that PEFT computes with the adapters of
tests/baker/adapters/places_case.py. It also has PEFT load the adapter that Hearth writes, and
compares the logits.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import peft
import torch

from hearthd.baker.adapters.adapter import write_adapter
from hearthd.models.catalog import ARCHITECTURES
from tests.baker.adapters import places_case
from tests.baker.adapters.peft_case import CASE, FOLDER, MERGED, settings
from tests.golden.record_lora_peft import PREFIX, base_model


def tuned() -> Any:
    """The model with the case's adapter, in PEFT."""
    config = peft.LoraConfig(
        r=CASE.lora.rank,
        lora_alpha=CASE.lora.alpha,
        target_modules=list(CASE.lora.projections),
        task_type="CAUSAL_LM",
    )
    model = peft.get_peft_model(base_model(CASE), config)
    initial = CASE.initial()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            key = name.removeprefix(PREFIX).replace(".default", "")
            if key in initial:
                weight.copy_(torch.tensor(initial[key]))
    return model


def logits(model: Any) -> Any:
    """Of some tokens."""
    with torch.no_grad():
        return model(torch.tensor(CASE.batch(0)[0], dtype=torch.int64)[None]).logits


def record_places() -> None:
    """Write places.npz."""
    recorded = {}
    with tempfile.TemporaryDirectory() as name:
        places_case.write_adapters(Path(name))
        for number, prompt in enumerate(places_case.PROMPTS):
            base = base_model(places_case.CASE)
            model = peft.PeftModel.from_pretrained(base, str(Path(name) / str(number))).double()
            for module in model.modules():
                if isinstance(module, peft.tuners.lora.LoraLayer):
                    module.scale_layer(places_case.SCALE)
            with torch.no_grad():
                row = model(torch.tensor(prompt)[None]).logits[0, -1]
            recorded[str(number)] = row.numpy().astype(np.float32)
    np.savez_compressed(places_case.LOGITS, **recorded)


def main() -> None:
    """Write the files, and check that PEFT reads ours."""
    record_places()
    model = tuned()
    expected = logits(model)
    model.float().save_pretrained(str(FOLDER))
    (FOLDER / "README.md").unlink()
    with tempfile.TemporaryDirectory() as name:
        write_adapter(
            Path(name), settings(), CASE.initial(), ARCHITECTURES[CASE.architecture], CASE.config
        )
        ours = peft.PeftModel.from_pretrained(base_model(CASE), name).double()
        assert (logits(ours) - expected).abs().max() < 1e-6
    merged = model.merge_and_unload().state_dict()
    matrices = {
        name: array.numpy()
        for name, array in merged.items()
        if name.split(".")[-2] in CASE.lora.projections
    }
    np.savez_compressed(MERGED, **matrices)


if __name__ == "__main__":
    main()
