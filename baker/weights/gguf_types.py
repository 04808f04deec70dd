"""The types of GGUF's tensors: the package gguf's, and newer ones of llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass

import gguf


@dataclass(frozen=True)
class GgufType:
    """A type: each block of `columns` columns of a row is stored in `bytes` bytes."""

    name: str
    columns: int
    bytes: int

    def stored_bytes(self, elements: int) -> int:
        """The bytes of a number of elements, a multiple of `columns`."""
        return elements // self.columns * self.bytes


# By number (ggml.h). Q2_0 as in llama.cpp of August 2026, ggml-common.h.
GGUF_TYPES = {42: GgufType("Q2_0", 64, 18)} | {
    type_.value: GgufType(type_.name, *sizes) for type_, sizes in gguf.GGML_QUANT_SIZES.items()
}
