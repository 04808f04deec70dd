"""A Hugging Face folder with quantized matrices, as a `WeightSource` of whole tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import override

from hearthd.baker.weights.quantized_folder.awq import AWQ
from hearthd.baker.weights.quantized_folder.bitnet import BITNET
from hearthd.baker.weights.quantized_folder.bitsandbytes import BITSANDBYTES
from hearthd.baker.weights.quantized_folder.compressed_tensors import COMPRESSED_TENSORS
from hearthd.baker.weights.quantized_folder.fp8 import FP8
from hearthd.baker.weights.quantized_folder.gptq import GPTQ
from hearthd.baker.weights.quantized_folder.mlx import MLX
from hearthd.baker.weights.quantized_folder.modelopt import MODELOPT
from hearthd.baker.weights.quantized_folder.mxfp4 import MXFP4_EXPERTS
from hearthd.baker.weights.quantized_folder.quantized_matrix import StoredParts
from hearthd.baker.weights.source import BadFile, UnsupportedType, WeightSource
from hearthd.baker.weights.source_in_front import SourceInFront
from hearthd.models.decoder.config.config_json import QUANTIZED, ConfigJson

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from hearthd.baker.weights.quantized_folder.quantized_matrix import Method, QuantizedMatrix
    from hearthd.baker.weights.safetensors import SafetensorsSource
    from hearthd.baker.weights.source import IntegerBlock

# By `quant_method` of `quantization_config`.
METHODS: Mapping[str, Method] = {
    "awq": AWQ,
    "gptq": GPTQ,
    "compressed-tensors": COMPRESSED_TENSORS,
    "fp8": FP8,
    "bitnet": BITNET,
    "bitsandbytes": BITSANDBYTES,
    "mxfp4": MXFP4_EXPERTS,
    "modelopt": MODELOPT,
    "mlx": MLX,
}
# AutoRound stores matrices as other methods do: auto_round/inference/backend.py has its names.
_AUTO_ROUND = ("auto-round", "intel/auto-round")
_GPTQ_V2 = {"quant_method": "gptq", "checkpoint_format": "gptq_v2"}
_AUTO_ROUND_PACKINGS: Mapping[str, Mapping[str, str]] = {
    "auto_round:auto_gptq": {"quant_method": "gptq", "checkpoint_format": "gptq"},
    "auto_round:gptqmodel": _GPTQ_V2,
    "auto_round": _GPTQ_V2,
    "auto_round:auto_awq": {"quant_method": "awq"},
}
_WEIGHT = "weight"


class QuantizedFolder(SourceInFront):
    """The tensors of a folder; the parts of a quantized matrix are one tensor, NAME.weight.

    Raises UnsupportedType for an unknown method, BadFile or ConfigError for tensors or settings
    that are not as the method has them.
    """

    def __init__(self, base: SafetensorsSource, settings: Mapping[str, Any]) -> None:
        """`settings` are the `quantization_config`."""
        super().__init__(base)
        settings = _as_known(settings)
        name = str(settings.get("quant_method"))
        if name not in METHODS:
            known = ", ".join((*METHODS, _AUTO_ROUND[0]))
            raise UnsupportedType(
                f"{base.folder / 'config.json'}: quantization_config: quant_method: got "
                f"{name!r:.80}, expected one of {known}; use the unquantized folder or a GGUF file"
            )
        method, config = METHODS[name], ConfigJson(settings, "config.json: quantization_config")
        stored = base.names()
        modules = {
            tensor.removesuffix(f"{method.separator}{mark}")
            for tensor in stored
            for mark in method.marks
            if tensor.endswith(f"{method.separator}{mark}")
        }
        if not modules:
            marks = " or ".join(f"NAME{method.separator}{mark}" for mark in method.marks)
            raise BadFile(
                f"{base.folder}: config.json says that it is quantized with {name}, but there is "
                f"no tensor {marks}; use the unquantized folder or a GGUF file"
            )
        self._matrices: dict[str, QuantizedMatrix] = {
            f"{module}.{_WEIGHT}": method.matrix(
                StoredParts(base, module, name, method.separator), config
            )
            for module in sorted(modules)
        }
        hidden = {
            f"{module}{method.separator}{part}" for module in modules for part in method.parts
        }
        plain = (
            tensor
            for tensor in stored
            if tensor not in hidden and not tensor.endswith(method.unused)
        )
        self._names = tuple(sorted({*plain, *self._matrices}))

    @override
    def names(self) -> tuple[str, ...]:
        """The names of the tensors, in alphabetical order."""
        return self._names

    @override
    def shape(self, name: str) -> tuple[int, ...]:
        """The tensor's shape."""
        matrix = self._matrices.get(name)
        return self._base.shape(name) if matrix is None else matrix.shape

    @override
    def is_flat(self, name: str) -> bool:
        """Whether the columns of a quantized tensor are not known."""
        matrix = self._matrices.get(name)
        return matrix is not None and matrix.is_flat

    @override
    def dtype(self, name: str) -> str:
        """The type of a plain tensor; the method and the bits of a quantized one."""
        matrix = self._matrices.get(name)
        return self._base.dtype(name) if matrix is None else matrix.type

    @override
    def blocks(self, name: str) -> Iterator[NDArray[np.float32]]:
        """The values of the tensor."""
        matrix = self._matrices.get(name)
        return self._base.blocks(name) if matrix is None else matrix.blocks()

    @override
    def integer_storage(self, name: str) -> str | None:
        """The storage that holds the integers of the tensor, if one does."""
        matrix = self._matrices.get(name)
        return None if matrix is None else matrix.storage

    @override
    def integer_blocks(self, name: str) -> Iterator[IntegerBlock]:
        """The integers of a tensor that has an `integer_storage`."""
        if self.integer_storage(name) is None:
            return WeightSource.integer_blocks(self, name)
        return self._matrices[name].integer_blocks()


def quantization_settings(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The settings of the tool that quantized a folder, by its config.json; None if there are none.

    Models that also read images can have them in `text_config`.
    """
    for section in (metadata, metadata.get("text_config")):
        for key in QUANTIZED:
            if isinstance(section, dict) and isinstance(settings := section.get(key), dict):
                return settings
    return None


def _as_known(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of the method that stores matrices in the same way.

    Old versions of transformers did not write the name of bitsandbytes, and MLX writes none.
    """
    if "quant_method" not in settings and "group_size" in settings:
        return {**settings, "quant_method": "mlx"}
    if "quant_method" not in settings and any(key.startswith("load_in_") for key in settings):
        return {**settings, "quant_method": "bitsandbytes"}
    if settings.get("quant_method") in _AUTO_ROUND:
        packing = settings.get("packing_format", "auto_round:auto_gptq")
        if not isinstance(packing, str) or packing not in _AUTO_ROUND_PACKINGS:
            raise UnsupportedType(
                f"config.json: quantization_config: packing_format: got {packing!r:.80}, expected "
                f"one of {', '.join(_AUTO_ROUND_PACKINGS)}; use the unquantized folder or a GGUF "
                "file"
            )
        return {**settings, **_AUTO_ROUND_PACKINGS[packing]}
    return settings
