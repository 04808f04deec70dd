"""`--precision native`: which tensors of quantized weights keep their integers, and how."""

from __future__ import annotations

import collections
import itertools
from typing import TYPE_CHECKING, Any

from hearthd.baker.weights.source import FLOAT_TYPES
from hearthd.models.precision import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearthd.baker.parameters.parameter_writer import Located
    from hearthd.baker.weights.source import WeightSource
    from hearthd.models.config import ModelConfig
    from hearthd.models.decoder.architecture import Architecture

# The type of a GGUF tensor -> the storage that holds its integers, a name of STORAGES.
NATIVE: Mapping[str, str] = {
    "Q4_0": "int4-g32",
    "Q4_1": "int4-g32-min",
    "Q5_0": "int5-g32",
    "Q5_1": "int5-g32-min",
    "Q8_0": "int8-g32",
    "Q2_K": "int2-g16-s256-min",
    "Q3_K": "int3-g16-s256",
    "Q4_K": "int4-g32-s256-min",
    "Q5_K": "int5-g32-s256-min",
    "Q6_K": "int6-g16-s256",
    "IQ4_NL": "iq4-g32",
    "IQ1_S": "iq1-s",
    "IQ1_M": "iq1-m",
    "IQ2_XXS": "iq2-xxs",
    "IQ2_XS": "iq2-xs",
    "IQ2_S": "iq2-s",
    "IQ3_XXS": "iq3-xxs",
    "IQ3_S": "iq3-s",
    "IQ4_XS": "iq4-g32-s256",
    "MXFP4": "mxfp4-g32",
    "NVFP4": "nvfp4-g16-s256",
    "Q1_0": "int1-g128",
    "Q2_0": "int2-g64",
    "TQ1_0": "ternary-g256",
    "TQ2_0": "int2-g256",
}


def integer_storage(source: WeightSource, tensor: str) -> str | None:
    """The storage that holds the integers of a tensor, a name of STORAGES; None if none does."""
    return source.integer_storage(tensor) or NATIVE.get(source.dtype(tensor))


def storages(
    precision: str, source: WeightSource, architecture: Architecture[Any], config: ModelConfig
) -> dict[str, str]:
    """The parameters that are stored in another way than the precision's: see ProgramOptions.

    Raises a WeightsError for a tensor that is missing.
    """
    kept = kept_integers(precision, source, architecture, config)
    return {**_fine(precision, source, architecture, config), **kept}


def _fine(
    precision: str, source: WeightSource, architecture: Architecture[Any], config: ModelConfig
) -> dict[str, str]:
    """The matrices of towers that a precision of 8 bits stores in 12, if files have them as floats.

    Raises a WeightsError for a tensor that is missing.
    """
    if not config.has_fine_towers or PRECISIONS[precision].storage.name != "int8-g32":
        return {}
    names, gguf = source.names(), source.format == "gguf"
    return {
        name: "int12-g32"
        for name, parameter in architecture.model(config).parameters().items()
        if name.partition(".")[0] in architecture.tensors.towers and parameter.type.rank == 2
        for tensors in [architecture.tensors.parts(config, name, names, gguf=gguf)]
        if not any(integer_storage(source, tensor.name) for tensor in tensors)
    }


def kept_integers(
    precision: str, source: WeightSource, architecture: Architecture[Any], config: ModelConfig
) -> dict[str, str]:
    """The storages of parameters that keep their integers, where they are not the precision's.

    A parameter whose tensors need different storages is stored as the precision says. Raises a
    WeightsError for a tensor that is missing.
    """
    chosen = PRECISIONS[precision]
    if not chosen.native:
        return {}
    names, gguf = source.names(), source.format == "gguf"
    if not any(integer_storage(source, name) for name in names):
        return {}
    result = {}
    for parameter in architecture.model(config).parameters():
        tensors = architecture.tensors.parts(config, parameter, names, gguf=gguf)
        found = {integer_storage(source, tensor.name) for tensor in tensors}
        storage = found.pop()
        if not found and storage not in (None, chosen.storage.name):
            result[parameter] = storage
    return result


def default_precision(
    precision: str, source: WeightSource, architecture: Architecture[Any], config: ModelConfig
) -> str:
    """A recipe's precision; for `native`, if no tensor keeps other bits, the equal precision.

    Raises a WeightsError for a tensor that is missing.
    """
    chosen = PRECISIONS.get(precision)  # None for `auto`
    arguments = precision, source, architecture, config
    if chosen is None or not chosen.native or kept_integers(*arguments):
        return precision
    return chosen.storage.name


def requantized(source: WeightSource, located: Sequence[Located]) -> str | None:
    """A sentence on quantized tensors whose integers no storage holds; None without any."""
    types: collections.Counter[str] = collections.Counter()
    storages = set()
    for entry in located:
        for tensor in itertools.chain.from_iterable(entry.tensors):
            type_ = source.dtype(tensor.name)
            if (
                entry.weight.storage.format is not None
                and type_ not in FLOAT_TYPES
                and integer_storage(source, tensor.name) is None
            ):
                types[type_] += 1
                storages.add(entry.weight.storage.format.name)
    if not types:
        return None
    counts = ", ".join(f"{count} tensors in {type_}" for type_, count in types.items())
    return (
        f"no matrix format holds these weights exactly: {counts}; they are dequantized, and "
        f"quantized again as {', '.join(sorted(storages))}"
    )
