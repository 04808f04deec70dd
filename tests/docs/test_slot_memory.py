"""The memory of slots of recurrent hybrids in docs/choose-a-model.md is what their caches take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.synthetic_shapes import SIZES, architecture_of
from hearthd.models.decoder.slot_caches import layer_caches
from hearthd.models.program import ProgramOptions

PAGE = Path(__file__).parents[2] / "docs" / "choose-a-model.md"
OPTIONS = ProgramOptions(
    context=32768,
    precision="int4-g32",
    prefill_tokens=(128,),
    decode_batches=(1,),
    verify_tokens=(4,),
    kv_cache="f16",
)


@pytest.mark.parametrize(
    "name", ["Qwen3.5 0.8B", "Qwen3.5 2B", "Qwen3.5 4B", "Granite 4 H 1B", "Nemotron 3 Nano 4B"]
)
def test_the_page_has_the_memory_of_a_slot(name: str) -> None:
    config = SIZES[name.lower().replace(" ", "-")]
    model = architecture_of(config).model(config)
    caches = [
        spec for layer in range(config.layers) for spec in layer_caches(model, layer, OPTIONS)
    ]
    states = [spec for spec in caches if spec.state]
    sizes = (sum(x.bytes for x in caches), sum(x.bytes for x in states))
    snapshot = sum(spec.row_bytes for spec in states)
    row = re.search(
        rf"^\| {re.escape(name)} \| ([\d,]+) \| (\d+) \| (\d+) \|", PAGE.read_text(), re.M
    )
    assert row is not None
    shown = [int(number.replace(",", "")) for number in row.groups()]
    assert shown == [round(size / 1e6) for size in (*sizes, snapshot)]
