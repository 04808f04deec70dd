"""The catalog has each architecture of models/families once."""

from __future__ import annotations

from pathlib import Path

from hearthd.models import families
from hearthd.models.catalog import ARCHITECTURES, ASSISTANTS, ENCODERS, SPEECH


def test_each_file_with_an_architecture_adds_a_name() -> None:
    paths = Path(families.__path__[0]).glob("*.py")
    files = [path.stem for path in paths if "\nARCHITECTURE = " in path.read_text("utf-8")]
    names = [name for kind in (ARCHITECTURES, ASSISTANTS, ENCODERS, SPEECH) for name in kind]
    assert sorted(set(names)) == sorted(names)
    assert len(names) == len(files)
