"""The tensors and keys of gpt-oss, as llama.cpp's converter writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tests.models.families.case_arguments import YARN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Array = NDArray[Any]


def gpt_oss(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """A tensor of a folder as in a file: `GptOssModel` of conversion/gpt_oss.py."""
    module, is_bias, _ = name.partition("_bias")
    suffix = ".bias" if is_bias else ".weight"
    if not is_bias and "experts" in name:
        values = np.ascontiguousarray(values.swapaxes(-1, -2))
    if "gate_up_proj" in name:
        for first, part in enumerate(("gate_proj", "up_proj")):
            rows = values[:, first::2]
            yield module.replace("gate_up_proj", part) + suffix, np.ascontiguousarray(rows)
    elif "experts" in name or name.endswith("sinks"):
        yield module + suffix, values
    else:
        yield name, values


def gpt_oss_keys(config: Any) -> dict[str, Any]:
    """The keys of an architecture's own."""
    return {
        "attention.sliding_window": next(window for window in config.windows if window),
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": YARN["factor"],
        "rope.scaling.original_context_length": YARN["original_max_position_embeddings"],
        "rope.scaling.yarn_beta_fast": 4.0,
    }
