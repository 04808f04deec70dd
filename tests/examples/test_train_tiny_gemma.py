"""The tiny Gemma's script: what it makes; trained a little, it bakes and continues the text."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from tokenizers import Tokenizer

from examples import training
from examples.train_tiny_gemma import (
    CONFIG,
    LENGTH,
    SEQUENCES,
    batches,
    hugging_face_config,
    main,
    tokenizer,
)
from hearthd.baker.pipeline.bake import bake
from hearthd.models.families.gemma3 import ARCHITECTURE
from hearthd.runtime.interface import read_prompt
from hearthd.runtime.open_bundle import open_bundle
from tests.conftest import Silent, few_entry_points, options_for

if TYPE_CHECKING:
    from pathlib import Path


def test_the_written_configuration_is_read_back() -> None:
    assert ARCHITECTURE.from_hugging_face(hugging_face_config()) == CONFIG
    window, none = CONFIG.windows
    assert none is None
    assert window is not None
    assert window < LENGTH


def test_a_target_is_the_next_byte() -> None:
    tokens, targets = batches(0)(7)
    assert tokens.shape == targets.shape == (SEQUENCES * LENGTH,)
    rows = tokens.reshape(SEQUENCES, LENGTH), targets.reshape(SEQUENCES, LENGTH)
    assert np.array_equal(rows[0][:, 1:], rows[1][:, :-1])
    assert bytes(tokens.astype(np.uint8)).startswith(b"after ")


@pytest.mark.parametrize("text", ["after monday", "é\n", "\u65e5<0x41>"])
def test_tokens_are_bytes(text: str) -> None:
    ids = tokenizer().encode(text).ids
    assert ids == list(text.encode())
    assert tokenizer().decode(ids) == text


@pytest.mark.slow
@pytest.mark.nightly
def test_a_trained_gemma_is_baked_and_continues_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "COMPARED", 4)
    folder = tmp_path / "tiny"
    main(steps=80, out=folder, seed=0)
    said = capsys.readouterr().out
    assert f"the first {training.COMPARED} losses equal NumPy's within" in said
    losses = [float(line.split()[-1]) for line in said.splitlines() if line.startswith("step")]
    assert losses[-1] < losses[0] / 30
    assert ET.parse(folder / "loss.svg").getroot().get("role") == "img"

    with few_entry_points():
        bundle = bake(options_for(tmp_path / "bundle", weights=folder, slots=1), Silent())
    _, runtime = open_bundle(bundle, threads=None)
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode("after friday comes ").ids
    logits = read_prompt(runtime, ids)
    made = b""
    for position in range(len(ids), len(ids) + 9):
        token = int(np.argmax(logits))
        made += bytes([token])
        logits = runtime.decode([0], [token], [position])[0]
    assert made == b"saturday."
