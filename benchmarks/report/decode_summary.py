"""A table with a row for each model that `benchmarks.decode` measured, in all of its JSON files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearthd.baker.presentation.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

COMMAND = "benchmarks.decode"
# The figures that have a column, by the label of their row: the heading, and whether the other
# engine has the figure too.
_FIGURES = {
    "decode, tokens/s": ("Decode", True),
    "prefill of 128 tokens, tokens/s": ("Prefill of 128", True),
    "prefill of 512 tokens, tokens/s": ("Prefill of 512", True),
    "prefill of 4096 tokens, tokens/s": ("Prefill of 4096", True),
    "weights read per token, MB": ("Read per token, MB", False),
    "server: start to first token, s": ("Server: first token, s", False),
    "server: resident memory, MB": ("Server: memory, MB", False),
}


def decode_summary(records: Sequence[dict[str, Any]]) -> Table:
    """The medians of Hearth in each pair of a bundle and a file; speeds with their ratio."""
    return Table(
        title="Medians of Hearth. Speeds are in tokens/s; after x, divided by the other engine's",
        headings=(
            "Bundle", "Against", *(heading for heading, _ in _FIGURES.values()), "GB/s",
            "Revision",
        ),
        rows=tuple(row for record in records for row in _rows(record)),
    )  # fmt: skip


def _rows(record: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    command = record["command"]
    pairs = (command[i + 1] for i, word in enumerate(command) if word == "--pair")
    bandwidth = f"{record['machine']['read_bandwidth']:.0f}"
    revision = record["versions"]["hearth"].partition(", ")[2]
    for pair, table in zip(pairs, record["tables"], strict=True):
        figures = {label: (hearth, ratio) for label, hearth, _, ratio in table["rows"]}
        cells = (
            _cell(*figures.get(label, ("", "")), compared=compared)
            for label, (_, compared) in _FIGURES.items()
        )
        bundle, against = pair.partition("=")[0], table["title"].partition(" against ")[2]
        yield bundle, against, *cells, bandwidth, revision


def _cell(text: str, ratio: str, *, compared: bool) -> str:
    median = text.partition(" ")[0]
    return f"{median}, x {ratio}" if compared and median else median
