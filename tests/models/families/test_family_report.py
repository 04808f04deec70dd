"""The table of docs/supported-models.md says what is the case, where that is quick to find out."""

from __future__ import annotations

import re

import pytest

from hearthd.models.catalog import ARCHITECTURES, ENCODERS
from tests.models.families.family_report import (
    FILES,
    HEADER,
    MAX_LINES,
    PAGE,
    ROOT,
    TABLE,
    facts,
    lines_of,
)
from tests.models.families.test_families import TOLERANCE


def rows() -> list[list[str]]:
    found = TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found
    return [line.strip("| ").split(" | ") for line in found[0].splitlines()]


def test_the_table_has_every_file_and_its_facts() -> None:
    """`python -m tests.models.families.family_report` writes the table."""
    header, _, *table = rows()
    assert header == HEADER
    assert len(table) == len(ARCHITECTURES) + len(ENCODERS)
    assert [cells[:4] + cells[6:] for cells in table] == [facts(file) for file in FILES]


def test_the_table_states_no_failure() -> None:
    for name, *_, worst, tokens, templates, _folder, _gguf in rows()[2:]:
        assert float(worst) <= TOLERANCE, name
        assert tokens in ("all equal", "vectors"), name
        if templates != "none":
            equal, total = templates.split(" of ")
            assert equal == total, name


@pytest.mark.parametrize("file", FILES)
def test_files_are_short(file: str) -> None:
    assert lines_of(file) <= MAX_LINES[FILES[file].kind]


@pytest.mark.parametrize("file", FILES)
def test_a_variant_has_no_block_of_its_own(file: str) -> None:
    source = (ROOT / "models/families" / f"{file}.py").read_text(encoding="utf-8")
    blocks = re.findall(r"^class (\w*(?:Attention|Block|MLP))\(", source, re.M)
    assert not (FILES[file].varies and blocks)
