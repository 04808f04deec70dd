"""Record the answers of torch.nn.GRU for every case of gru_cases.py, in gru_torch.npz.

    python -m tests.golden.record_gru_torch

Recorded with torch 2.13.0. The file has one array, `values`: for each case its y and its h_n, flat,
in float64. They stand in for PyTorch where it is not installed; where it is, a test compares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from hearthd.models.dsl.types import DType
from tests.models.dsl.nn.gru_cases import CASES, GOLDEN, HIDDEN

if TYPE_CHECKING:
    from tests.models.dsl.nn.gru_cases import Array, Case


def torch_gru(case: Case, dtype: DType) -> tuple[Array, Array]:
    """torch's y and h_n of a case, computed in f32 or f64."""
    module = torch.nn.GRU(
        case.inputs,
        HIDDEN,
        num_layers=case.layers,
        bias=case.bias,
        batch_first=case.batch_first,
        bidirectional=case.bidirectional,
        dtype=torch.float64 if dtype is DType.F64 else torch.float32,
    )
    weights = {name: torch.from_numpy(array) for name, array in case.weights(dtype).items()}
    module.load_state_dict(weights)
    with torch.no_grad():
        y, h_n = module(*(torch.from_numpy(array) for array in case.inputs_of(dtype).values()))
    return y.numpy(), h_n.numpy()


def main() -> None:
    """Write the file."""
    answers = [answer.ravel() for case in CASES for answer in torch_gru(case, DType.F64)]
    np.savez_compressed(GOLDEN, values=np.concatenate(answers))


if __name__ == "__main__":
    main()
