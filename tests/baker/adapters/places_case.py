"""A tiny Gemma 3 with matrices of four bits, and adapters whose logits PEFT has computed.

tests/golden/record_peft_adapter.py runs them in transformers and PEFT, test_adapter_places.py here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from typing_extensions import override

from hearthd.baker.adapters.adapter import write_adapter
from hearthd.bundle.lora.adapter_settings import AdapterSettings
from hearthd.models.families.gemma3 import ARCHITECTURE, Config
from hearthd.models.lora.training import PROJECTIONS, Lora
from tests.baker.adapters.peft_case import FOLDER
from tests.baker.tokenizer.test_tokenizer_files import TOKENS, write_gguf
from tests.models.families.gguf_files import add_config
from tests.models.lora.lora_cases import LoraCase, normal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Array = NDArray[Any]

# By the name of an array of each adapter: f32 (V,), the logits after its prompt.
LOGITS = FOLDER / "places.npz"
_TYPE = gguf.GGMLQuantizationType.Q4_1


class QuantizedCase(LoraCase):
    """A case whose layers have matrices on the grid of Q4_1."""

    def quantized(self) -> dict[str, Array]:
        """The blocks of each matrix of a layer, u8, by parameter."""
        return {
            name: gguf.quants.quantize(array, _TYPE)
            for name, array in super().weights().items()
            if array.ndim == 2 and name.startswith("layers.")
        }

    @override
    def weights(self) -> dict[str, Array]:
        """As `LoraCase.weights`, of the values on the grid."""
        grid = {
            name: gguf.quants.dequantize(blocks, _TYPE) for name, blocks in self.quantized().items()
        }
        return super().weights() | grid


CASE = QuantizedCase(
    architecture="gemma3",
    config=Config(
        layers=2, hidden=64, ffn=96, heads=2, kv_heads=1, head_dim=32, max_context=256,
        vocab_size=len(TOKENS), query_scale=32**-0.5, windows=(32, None),
    ),
    lora=Lora(rank=8, alpha=8.0),
)  # fmt: skip
# Rank and matrices of each adapter: smaller ranks than the places', and not every matrix.
ADAPTERS = ((8, PROJECTIONS), (4, ("q_proj", "v_proj", "down_proj")), (3, ("k_proj", "up_proj")))
# The scale of a request, and the prompt after which each adapter's logits were recorded.
SCALE = 0.7
PROMPTS = [list(range(3, 3 + length)) for length in (21, 5, 40)]


def write_model(path: Path) -> None:
    """Write the model as a GGUF file."""
    quantized = CASE.quantized()

    def add_model(writer: gguf.GGUFWriter) -> None:
        add_config(writer, CASE.architecture, CASE.config)
        for name, array in CASE.weights().items():
            stored = ARCHITECTURE.tensors.find(CASE.config, name, (), gguf=True)
            if name in quantized:
                writer.add_tensor(stored.name, quantized[name], raw_dtype=_TYPE)
            else:
                writer.add_tensor(stored.name, array - np.float32(stored.offset))

    write_gguf(path, add_model)


def write_adapters(folder: Path) -> None:
    """Write each adapter in PEFT's format, in a folder of its number."""
    for number, (rank, projections) in enumerate(ADAPTERS):
        settings = AdapterSettings(rank=rank, alpha=8.0, projections=projections)
        out = folder / str(number)
        out.mkdir()
        write_adapter(out, settings, _factors(number, rank, projections), ARCHITECTURE, CASE.config)


def _factors(number: int, rank: int, projections: Sequence[str]) -> dict[str, Array]:
    factors = {}
    for name, tensor in CASE.parameters.items():
        module, (rows, *columns) = name.removesuffix(".weight"), tensor.shape
        if module.rpartition(".")[2] in projections:
            for factor, shape in (("lora_A", (rank, *columns)), ("lora_B", (rows, rank))):
                key = f"{module}.{factor}.weight"
                factors[key] = normal(f"{number}, {key}", shape, 1 / 8)
    return factors
