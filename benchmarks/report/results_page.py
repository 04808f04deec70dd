"""A page of the results of one machine, from the JSON files that benchmarks wrote there.

    python -m benchmarks.report.results_page docs/results/zen-3

writes docs/results/zen-3.md from the files of that folder, in the order of their names. The page
begins with about.txt there, which has its title and says how the machine was used; without that
file, with the name of the CPU. All decodes are rows of one table.
"""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.report.decode_summary import COMMAND, decode_summary
from benchmarks.report.machine import Machine, versions_line
from hearthd.baker.presentation.table import Table, markdown_table

if TYPE_CHECKING:
    from collections.abc import Iterator


def page_of(folder: Path) -> str:
    """The page as Markdown."""
    records = [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]
    about = folder / "about.txt"
    title = about.read_text("utf-8").strip() if about.exists() else None
    return "\n\n".join(_blocks(records, title)) + "\n"


def _blocks(records: list[Any], title: str | None) -> Iterator[str]:
    cpus = {record["machine"]["cpu"] for record in records}
    if len(cpus) != 1:
        raise ValueError(f"expected the results of one machine, got {sorted(cpus)}")
    yield title or f"# {cpus.pop()}"
    yield "Generated from the JSON of the benchmarks. [The method](method.md) explains the terms."
    decodes = [record for record in records if record["command"][0] == COMMAND]
    if decodes:
        yield from _table(decode_summary(decodes))
    for record in records:
        if record in decodes:
            continue
        command = shlex.join(["python", "-m", *record["command"]])
        yield f"```bash\n{command}\n```"
        machine = Machine(**record["machine"])
        yield f"{machine}; {versions_line(record['versions'])}."
        for entry in record["tables"]:
            rows = tuple(map(tuple, entry["rows"]))
            headings = tuple(entry["headings"])
            yield from _table(Table(title=entry["title"], headings=headings, rows=rows))


def _table(table: Table) -> Iterator[str]:
    yield f"{table.title}:"
    yield markdown_table(table)


def main() -> None:
    """Write the pages of folders."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    for folder in parser.parse_args().folders:
        folder.with_suffix(".md").write_text(page_of(folder), encoding="utf-8")


if __name__ == "__main__":
    main()
