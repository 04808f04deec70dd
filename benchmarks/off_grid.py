"""Write an F32 GGUF file whose weights lie on no grid, from a quantized one.

    python -m benchmarks.off_grid model-q4_k_m.gguf off-grid-f32.gguf

The weights of a quantized file lie on grids of 4 to 8 bits. That flatters every format with as many
bits: it stores them nearly exactly. Here each weight gets uniform noise of half a step of its own
grid to either side, which is where a weight could have been before it was rounded.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np

from hearthd.baker.weights import gguf_integers
from hearthd.baker.weights.gguf import GgufSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from hearthd.baker.weights.source import WeightSource

_SEED = 0


def off_grid(source: WeightSource, name: str, rng: np.random.Generator) -> NDArray[np.float32]:
    """The values of a tensor with noise of at most half a step; those of another type as they are.

    The step of a weight is the scale of its group.
    """
    values = source.read(name)
    if source.dtype(name) not in gguf_integers.TYPES:
        return values
    start = 0
    for block in source.integer_blocks(name):
        rows = values[start : start + len(block.scale)]
        steps = np.repeat(np.abs(block.scale), rows.shape[1] // block.scale.shape[1], axis=1)
        rows += (rng.random(rows.shape, np.float32) - np.float32(0.5)) * steps
        start += len(rows)
    return values


def write_off_grid(quantized: Path, out: Path) -> None:
    """Write the file; its metadata is that of the quantized one. Raises a WeightsError."""
    source, rng = GgufSource(quantized), np.random.default_rng(_SEED)
    writer = gguf.GGUFWriter(out, str(source.metadata()["general.architecture"]))
    for field in gguf.GGUFReader(quantized).fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value: Any = field.contents()
        if field.name == "general.file_type":
            value = gguf.LlamaFileType.ALL_F32.value
        writer.add_key_value(
            field.name, value, field.types[0], field.types[-1] if len(field.types) > 1 else None
        )
    for name in source.names():
        shape = source.shape(name)
        writer.add_tensor_info(name, shape, np.dtype(np.float32), 4 * int(np.prod(shape)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name in source.names():
        writer.write_tensor_data(off_grid(source, name, rng))
    writer.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m benchmarks.off_grid")
    parser.add_argument("quantized", type=Path, help="quantized GGUF file")
    parser.add_argument("out", type=Path, help="F32 GGUF file to write")
    parsed = parser.parse_args(arguments)
    write_off_grid(parsed.quantized, parsed.out)


if __name__ == "__main__":
    main()
