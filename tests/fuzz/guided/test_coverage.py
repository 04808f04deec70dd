"""The inputs that the fuzzer with coverage has kept, each read again without it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from hearthd.text.templates import template_budget
from tools.fuzz.guided import coverage_inputs
from tools.fuzz.guided.coverage_inputs import corpus, groups, mutated, seeds, victim_of, written

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("group", groups())
def test_inputs_of_the_corpus_reveal_no_defect(group: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_budget, "MAX_SECONDS", 0.02)
    for victim, data in corpus(group):
        victim.read(data)


@pytest.mark.parametrize("group", groups())
def test_every_valid_file_is_an_input(group: str) -> None:
    meant = [victim_of(group, data) for data in seeds(group)]
    for victim in groups()[group]:
        assert (victim, victim.valid) in meant


def test_an_input_is_damaged_as_its_format_or_by_libfuzzer() -> None:
    data = next(seeds("config"))
    changed = {mutated("config", data, seed, lambda _: b"!") for seed in range(40)}
    assert data[:1] + b"!" in changed
    assert any(one[1:].startswith(b"{") for one in changed)
    assert mutated("config", b"", 0, lambda _: b"!")[1:] == b"!"


def test_a_corpus_is_read_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coverage_inputs, "CORPUS", tmp_path / "corpus")
    inputs = [bytes([index]) + Random(index).randbytes(10 + index) for index in range(3)]
    assert written("config", inputs, limit=10**6) == 3
    assert corpus("config") == [victim_of("config", data) for data in inputs]
    assert written("config", inputs, limit=150) == 1
    assert corpus("config") == [victim_of("config", inputs[0])]
