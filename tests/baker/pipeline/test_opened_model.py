"""The programs of a model whose weights are open."""

from __future__ import annotations

from typing import Any

import pytest

from hearthd.baker.atomic_folder import BakeError
from hearthd.baker.pipeline.opened_model import OpenedModel
from hearthd.models.catalog import ARCHITECTURES
from hearthd.models.program import ProgramOptions
from tests.models.families.hybrid_models import CONFIGS

SOURCE: Any = None  # nothing is read
OPTIONS = ProgramOptions(
    context=32, precision="f32", prefill_tokens=(4,), decode_batches=(1,), verify_tokens=()
)


def test_a_recurrence_that_cannot_be_compiled_is_refused_with_the_size_that_it_needs() -> None:
    architecture = ARCHITECTURES["mamba"]
    config = architecture.from_hugging_face(CONFIGS["mamba"] | {"intermediate_size": 250})
    with pytest.raises(BakeError, match=r"this mamba .* selective_scan.* a multiple of 16$"):
        OpenedModel(SOURCE, architecture, config).program(OPTIONS)
