"""A tiny Qwen3.5 and an adapter of matrices of both kinds of its layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.baker.adapters.adapter import write_adapter
from hearthd.bundle.lora.adapter_settings import AdapterSettings
from hearthd.models.catalog import ARCHITECTURES
from tests.baker.adapters.peft_case import FOLDER
from tests.models.families.hybrid_models import CONFIGS, TEXT, write_model
from tests.models.lora.lora_cases import normal

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

NAME = "qwen35"
# f32 (V,), the logits after PROMPT that PEFT and transformers compute.
LOGITS = FOLDER / "hybrid.npy"
PROMPT = TEXT[:150]
RANK = 4
PROJECTIONS = (
    "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "out_proj", "q_proj", "o_proj",
    "gate_proj",
)  # fmt: skip


def write_hybrid(folder: Path) -> None:
    """Write the model to `model` and the adapter, in PEFT's format, to `adapter`."""
    write_model(folder / "model", NAME)
    architecture = ARCHITECTURES[NAME]
    config: Any = architecture.from_hugging_face(CONFIGS[NAME])
    factors: dict[str, NDArray[Any]] = {}
    for name, tensor in architecture.model(config).parameters().items():
        module = name.removesuffix(".weight")
        if module.rpartition(".")[2] in PROJECTIONS:
            rows, columns = tensor.shape
            for factor, shape in (("lora_A", (RANK, columns)), ("lora_B", (rows, RANK))):
                key = f"{module}.{factor}.weight"
                factors[key] = normal(key, shape, 1 / 8)
    settings = AdapterSettings(rank=RANK, alpha=2.0 * RANK, projections=PROJECTIONS)
    (folder / "adapter").mkdir()
    write_adapter(folder / "adapter", settings, factors, architecture, config)
