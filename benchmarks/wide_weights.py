"""Write the F32 GGUF file of a small model whose rows are filled with zeros to 256 columns.

    python -m benchmarks.wide_weights SmolLM2-135M-Instruct.Q4_1.gguf wide.gguf
    llama-quantize --imatrix wide.imatrix --pure --tensor-type ".*=iq2_s" wide.gguf iq2_s.gguf Q8_0

The super-blocks of K-quants and IQ types have 256 columns, and the rows of small models do not
divide into them: llama-quantize then takes other types. SmolLM2 135M has rows of 576 columns, 9
heads and 3 key/value heads. The file has rows of 768, 12 heads and 4 key/value heads. What is new
is 0, so the model computes the same: hidden states, queries, keys and values of 0 stay 0. A norm
divides by the root of the mean over more columns, so its weights and its epsilon are smaller.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import gguf
import numpy as np

from benchmarks.inputs import existing_path

_COLUMNS = 256  # of a super-block
_HIDDEN, _EPSILON = "llama.embedding_length", "llama.attention.layer_norm_rms_epsilon"
_HEADS, _KV_HEADS = "llama.attention.head_count", "llama.attention.head_count_kv"
_SIZES = (_HIDDEN, _HEADS, _KV_HEADS)


def wide_shape(sizes: tuple[int, int, int]) -> tuple[int, int, int]:
    """Columns, heads and key/value heads: the least that 256 columns divide."""
    hidden, heads, kv_heads = sizes
    width, group = hidden // heads, heads // kv_heads
    while hidden % _COLUMNS or kv_heads * width % _COLUMNS:
        kv_heads += 1
        hidden = kv_heads * group * width
    return hidden, kv_heads * group, kv_heads


def widened(name: str, values: np.ndarray, sizes: dict[int, int], norm: float) -> np.ndarray:
    """A tensor with zeros in its new rows and columns; `sizes` has the new ones by the old ones."""
    if values.ndim == 1:
        values = values * np.float32(norm)
    keep = "token_embd" in name  # the rows of this table are tokens
    missing = [
        (0, 0 if keep and axis == 0 else sizes.get(size, size) - size)
        for axis, size in enumerate(values.shape)
    ]
    return np.pad(values, missing)


def write_wide(source: Path, out: Path) -> None:
    """Write the file; the source is a GGUF file of the architecture llama with a tied head."""
    reader = gguf.GGUFReader(source)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    hidden, heads, kv_heads = (int(fields[key]) for key in _SIZES)
    wide = wide_shape((hidden, heads, kv_heads))
    width = hidden // heads
    sizes = {hidden: wide[0], kv_heads * width: wide[2] * width}
    share = hidden / wide[0]
    changed = dict(zip(_SIZES, wide, strict=True)) | {_EPSILON: fields[_EPSILON] * share}
    writer = gguf.GGUFWriter(out, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in {"general.architecture", "general.file_type"}:
            continue
        kind = field.types[0]
        item = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, changed.get(name, fields[name]), kind, item)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, widened(tensor.name, values, sizes, math.sqrt(share)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    """Parse the command line and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=existing_path, help="GGUF file of SmolLM2 135M")
    parser.add_argument("out", type=Path, help="GGUF file to write")
    options = parser.parse_args()
    write_wide(options.source, options.out)


if __name__ == "__main__":
    main()
