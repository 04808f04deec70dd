"""Sequences that are read at once, as in training and calibration, against transformers' logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearthd.baker.calibration.reading import FileWeights
from hearthd.baker.weights.open_weights import open_weights
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.decoder.next_token_loss import whole_sequence_states
from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.trace import trace
from hearthd.models.dsl.types import DType, TensorType
from tests.by_day import BY_DAY
from tests.models.families import ours
from tests.models.families.cases import CASES, TOKENS
from tests.models.families.family_recording import ROWS, recorded, write_folder

if TYPE_CHECKING:
    from pathlib import Path

    from hearthd.models.dsl.graph import Tensor

TOLERANCE = 1e-4  # of the largest logit
# Attention with linear biases is in none of BY_DAY.
BY_DAY_HERE = BY_DAY | {"bloom"}
# A case of each architecture.
OF_ARCHITECTURE = {case.architecture: name for name, case in reversed([*CASES.items()])}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if architecture in BY_DAY_HERE else pytest.mark.nightly)
        for architecture, name in OF_ARCHITECTURE.items()
    ],
)
def test_sequences_read_at_once_have_the_logits_of_transformers(name: str, tmp_path: Path) -> None:
    """Two equal sequences of the recorded tokens have the recorded logits each."""
    case, recording = CASES[name], recorded(name)
    write_folder(recording, tmp_path)
    source = open_weights(tmp_path)
    architecture = ARCHITECTURES[case.architecture]
    config = ours.config_of(source, case.architecture)
    model = architecture.model(config)

    def logits_of(tokens: Tensor) -> tuple[Tensor]:
        return (model.logits(whole_sequence_states(model, tokens, 2)),)

    tokens = np.array(2 * TOKENS, np.int32)
    inputs = {"tokens": TensorType(tokens.shape, DType.I32)}
    graph = trace("logits", logits_of, inputs, parameters=model.parameters())
    weights = FileWeights(source, architecture, config, model.parameters(), tmp_path)
    (logits,) = evaluate(graph, [tokens], weights)
    for sequence in np.split(logits, 2):
        difference = np.abs(sequence[ROWS] - recording.logits).max()
        assert difference <= TOLERANCE * np.abs(recording.logits).max()
