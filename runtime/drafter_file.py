"""The file of a drafter, which models/decoder/drafting/drafter.py describes.

A safetensors file with the parameters of the layer by their names in the model, `drafter.layer...`,
and `head_tokens`, (T,): the tokens that can be drafted, ascending. T is a multiple of 16, as the
number of rows of stored matrices is. All tensors are F32, F16 or BF16.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hearthd.bundle import DRAFTER
from hearthd.bundle.parsing import safetensors_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

HEAD_TOKENS = "head_tokens"


@dataclass(frozen=True, kw_only=True, eq=False)
class DrafterFile:
    """The file of a drafter.

    path         where it was read
    content      its bytes
    head_tokens  i32 (T,)
    weights      by name, f32
    """

    path: Path
    content: bytes
    head_tokens: NDArray[np.int32]
    weights: Mapping[str, NDArray[np.float32]]


def read_drafter(path: Path, *, vocab_size: int) -> DrafterFile:
    """Read a drafter's file, or the one in a folder; raises OSError or ValueError."""
    file = path / DRAFTER if path.is_dir() else path
    content = file.read_bytes()
    try:
        entries, data = safetensors_file.parse(content)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is not a complete safetensors file: {error}") from error
    weights = {}
    for name, (stored, shape, start) in entries.items():
        stop = start + math.prod(shape) * safetensors_file.BYTES[stored]
        values = safetensors_file.floats(data[start:stop], stored).reshape(shape)
        if not np.isfinite(values).all():
            raise ValueError(f"{file}: tensor {name} has values that are not finite")
        weights[name] = values
    head = weights.pop(HEAD_TOKENS, np.empty(0, np.float32))
    tokens = head.astype(np.int32)
    are_tokens = head.ndim == 1 and head.size % 16 == 0 < head.size and bool((head == tokens).all())
    ascending = are_tokens and bool((np.diff(tokens) > 0).all())
    if not ascending or tokens[0] < 0 or tokens[-1] >= vocab_size:
        raise ValueError(
            f"{file}: expected {HEAD_TOKENS}, ascending tokens below {vocab_size}, the vocabulary "
            "of the model; use a drafter that `hearth tune --drafter` made for this model"
        )
    return DrafterFile(path=file, content=content, head_tokens=tokens, weights=weights)
