"""The adapter that tests/golden/record_peft_adapter.py has recorded from PEFT."""

from __future__ import annotations

from pathlib import Path

from hearthd.bundle.lora.adapter_settings import AdapterSettings
from tests.models.lora.lora_cases import CASES

FOLDER = Path(__file__).parents[2] / "golden" / "peft_adapter"
MERGED = FOLDER / "merged.npz"
CASE = CASES["gemma3"]


def settings() -> AdapterSettings:
    """The settings of the case."""
    lora = CASE.lora
    return AdapterSettings(rank=lora.rank, alpha=lora.alpha, projections=lora.projections)
