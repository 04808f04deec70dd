"""A page of results is made from the JSON files of a machine, and is up to date."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.report.machine import Machine, write_json
from benchmarks.report.results_page import page_of
from hearthd.baker.presentation.table import Table

RESULTS = Path(__file__).parents[2] / "docs" / "results"
MACHINE = Machine(cpu="AMD EPYC", cores=2, threads=2, read_bandwidth=40.4, load_before=0.1)
TABLE = Table(title="ours against theirs", headings=("", "ours"), rows=(("decode", "9 (8 to 10)"),))
PAGE = """\
# AMD EPYC

Generated from the JSON of the benchmarks. [The method](method.md) explains the terms.

```bash
python -m benchmarks.decode --pair 'a b=c'
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
    monkeypatch.setattr("sys.argv", ["benchmarks/decode.py", "--pair", "a b=c"])
    path = tmp_path / "decode.json"
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


@pytest.mark.parametrize(
    "folder", [path for path in RESULTS.iterdir() if path.is_dir()], ids=lambda path: path.name
)
def test_pages_are_up_to_date(folder: Path) -> None:
    assert folder.with_suffix(".md").read_text("utf-8") == page_of(folder)
