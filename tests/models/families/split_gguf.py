"""Split a GGUF file as `llama-gguf-split` does: by the gguf package, which writes the same keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gguf

if TYPE_CHECKING:
    from pathlib import Path

_WRITTEN = ("GGUF.", "general.architecture")  # by the writer itself


def split_gguf(path: Path, *, tensors: int, empty_first: bool = False) -> list[Path]:
    """Write the shards of a file beside it, `tensors` in each; returns their paths.

    `empty_first` leaves the first shard without tensors, as --no-tensor-first-split does.
    """
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(
        path,
        reader.fields["general.architecture"].contents(),
        split_max_tensors=tensors,
        small_first_shard=empty_first,
    )
    copy_keys(reader, writer)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(path.parent.glob(f"{path.stem}-?????-of-?????.gguf"))


def copy_keys(reader: gguf.GGUFReader, writer: gguf.GGUFWriter) -> None:
    """Write the keys of a file into another one."""
    for key, field in reader.fields.items():
        if not key.startswith(_WRITTEN):
            type_ = field.types[0]
            element = field.types[-1] if type_ is gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(key, field.contents(), type_, sub_type=element)
