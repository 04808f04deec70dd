"""A page of results is made from the JSON files of a machine, and is up to date."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.report.machine import Machine, write_json
from benchmarks.report.results_page import page_of
from hearthd.baker.presentation.table import Table

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SPEEDS = Table(
    title="Hearth native against llama.cpp Q4_0",
    headings=("", "Hearth native", "llama.cpp Q4_0", "ratio"),
    rows=(
        ("decode, tokens/s", "9 (8 to 10)", "3", "3.00"),
        ("server: resident memory, MB", "70", "", ""),
    ),
)
MACHINE = Machine(cpu="AMD EPYC", cores=2, threads=2, read_bandwidth=40.4, load_before=0.1)
TABLE = Table(title="ours against theirs", headings=("", "ours"), rows=(("decode", "9 (8 to 10)"),))
PAGE = """\
# AMD EPYC

Generated from the JSON of the benchmarks. [The method](method.md) explains the terms.

```bash
python -m benchmarks.speech 'a b'
```

AMD EPYC, 2 threads, 40 GB/s read, load 0.1 at the start; hearth 1; iree 3.

ours against theirs:

|  | ours |
|---|---:|
| decode | 9 (8 to 10) |
"""


def test_a_page_has_the_command_the_machine_and_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks/speech.py", "a b"])
    path = tmp_path / "speech.json"
    write_json(path, MACHINE, {"hearth": "1", "iree": "3"}, [TABLE], rounds={"ours": []})
    assert page_of(tmp_path) == PAGE
    (tmp_path / "about.txt").write_text("# Zen 3\n\nQuiet.\n", encoding="utf-8")
    assert page_of(tmp_path) == PAGE.replace("# AMD EPYC\n", "# Zen 3\n\nQuiet.\n", 1)
    record = json.loads(path.read_bytes())
    assert record["rounds"] == {"ours": []}
    record["machine"]["cpu"] = "another"
    (tmp_path / "another.json").write_text(json.dumps(record), encoding="utf-8")
    with pytest.raises(ValueError, match=r"the results of one machine, got .*another"):
        page_of(tmp_path)


def test_decodes_are_rows_of_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"hearth": "1, c0ffee", "iree": "3"}
    for pairs in (["a=a.gguf", "b=b.gguf"], ["c=c.gguf"]):
        arguments = [word for pair in pairs for word in ("--pair", pair)]
        monkeypatch.setattr("sys.argv", ["benchmarks/decode.py", *arguments])
        write_json(tmp_path / f"{len(pairs)}.json", MACHINE, versions, [SPEEDS] * len(pairs))
    page = page_of(tmp_path)
    assert page.count("| Bundle | Against | Decode |") == 1
    for bundle in "abc":
        assert (
            f"| {bundle} | llama.cpp Q4\\_0 | 9, x 3.00 |  |  |  |  |  | 70 | 40 | c0ffee |" in page
        )


@pytest.mark.parametrize(
    "folder", [path for path in RESULTS.iterdir() if path.is_dir()], ids=lambda path: path.name
)
def test_pages_are_up_to_date(folder: Path) -> None:
    assert folder.with_suffix(".md").read_text("utf-8") == page_of(folder)
