"""Measure KL divergence and bytes per token of models, and draw one against the other.

    python -m benchmarks.kl_by_bytes gemma3-f32 gemma3-int8-g32 gemma3-int4-g32 gemma3-q8_0.gguf \\
        --json kl.json --svg docs/images/kl-bytes.svg

The first argument is the reference. The others are bundles, exact:BUNDLE for all logits exact, or
GGUF files, which llama.cpp reads. All read the texts of `hearth compare`, of which each n-th
position is compared, over the whole vocabulary. Only one model is in memory at a time: the logits
of the reference are in a temporary file, a megabyte per position for Gemma.

The bytes are those of the weights that a decode step reads: see benchmarks/engines/step_bytes.py;
of a GGUF file, all weights. --earlier adds the figures of other runs with the same reference, such
as those of an environment without llama.cpp.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import gguf
import numpy as np
from rich.console import Console

from benchmarks.engines.step_bytes import step_bytes
from benchmarks.report.machine import describe_machine, physical_cores, versions, write_json
from benchmarks.report.speed_plots import SizePoint, kl_by_bytes
from hearthd.baker.compare.measurement.passages import UnreadableText, shipped_texts, text_passage
from hearthd.baker.compare.measurement.position_metrics import measure
from hearthd.baker.compare.report.summary import summarize
from hearthd.baker.compare.sides.llama_cpp import LlamaError
from hearthd.baker.compare.sides.open_side import EXACT_LOGITS, SideOptions, opened
from hearthd.baker.compare.sides.prediction import FullPrediction, NotFinitePrediction
from hearthd.baker.compare.sides.side import LlamaSide, SideError
from hearthd.baker.presentation.table import Table, print_table
from hearthd.baker.weights.gguf import GgufSource
from hearthd.baker.weights.source import WeightsError
from hearthd.models.bundle import BundleError, LanguageManifest, read_manifest_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from benchmarks.report.machine import Machine
    from hearthd.baker.compare.measurement.passages import Passage
    from hearthd.baker.compare.report.summary import Summary
    from hearthd.baker.compare.sides.side import Side

_LLAMA_CONTEXT = 4096  # positions, more than a shipped text has
_ERRORS = (
    BundleError, LlamaError, NotFinitePrediction, OSError, SideError, UnreadableText, WeightsError,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Quality:
    """A model's distance from the reference and its size.

    name        the precision of a bundle, or the type of a GGUF file
    step_bytes  of weights that a decode step reads
    types       of a GGUF file, the number of matrices of each type
    positions   that were compared
    kl          mean, standard error of the mean, and median, in nats
    agreement   the fraction of positions with the same most probable token
    """

    name: str
    is_hearth: bool
    step_bytes: int
    types: dict[str, int]
    positions: int
    kl_mean: float
    kl_error: float
    kl_median: float
    agreement: float


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The logits f32 (positions, V) of the reference at each `every`-th position of passages."""

    passages: Sequence[Passage]
    every: int
    logits: NDArray[np.float32]

    @staticmethod
    def of(side: Side, passages: Sequence[Passage], every: int, file: Path) -> Reference:
        """Let a side read the passages; its logits are kept in the file. Raises SideError."""
        if side.vocab_size is None:
            raise SideError(f"{side.about.name}: expected a bundle or a GGUF file as the reference")
        count = sum(len(range(1, one.compared_positions, every)) for one in passages)
        logits = np.memmap(file, np.float32, "w+", shape=(count, side.vocab_size))
        for row, (_, prediction) in zip(logits, read_some(side, passages, every), strict=True):
            row[:] = prediction.logits
        return Reference(passages=passages, every=every, logits=logits)

    def summary(self, side: Side) -> Summary:
        """The statistics of KL(reference || side); raises SideError."""
        if side.vocab_size != self.logits.shape[1]:
            raise SideError(
                f"{side.about.name} has {side.vocab_size} tokens in its vocabulary, "
                f"the reference has {self.logits.shape[1]}"
            )
        read = read_some(side, self.passages, self.every)
        return summarize(
            [
                measure(FullPrediction(row), prediction, token)
                for row, (token, prediction) in zip(self.logits, read, strict=True)
            ]
        )


def read_some(
    side: Side, passages: Sequence[Passage], every: int
) -> Iterator[tuple[int, FullPrediction]]:
    """The next token and its prediction at the positions that benchmarks.layer_kl compares.

    Raises SideError if a passage exceeds the context.
    """
    for passage in passages:
        needed = len(passage.token_ids) - 1
        if side.context is not None and side.context < needed:
            raise SideError(f"{side.about.name} has {side.context} positions, expected {needed}")
        tokens = passage.token_ids[passage.start :]
        pairs = zip(tokens, side.read(passage.token_ids, passage.start), strict=True)
        for token, prediction in itertools.islice(pairs, 1, None, every):
            assert isinstance(prediction, FullPrediction), "bundles and llama.cpp give all logits"
            yield token, prediction


def type_name(source: GgufSource) -> str:
    """The type of a GGUF file by llama.cpp's name, such as Q4_K_M."""
    number = source.metadata().get("general.file_type")
    try:
        # The name is after ALL_ or MOSTLY_. A value of another type than int is not known either.
        return str(gguf.LlamaFileType(number).name).partition("_")[2]  # type: ignore[arg-type]
    except ValueError:
        return f"type {number}"


def quality(name: str, side: Side, reference: Reference) -> Quality:
    """Measure an open side; raises SideError, WeightsError or BundleError."""
    types: Counter[str] = Counter()
    if isinstance(side, LlamaSide):
        source = GgufSource(Path(name))
        types.update(source.dtype(n) for n in source.names() if len(source.shape(n)) > 1)
        label, size = type_name(source), side.weights_bytes
    else:
        exact = name.startswith(EXACT_LOGITS)
        manifest = read_manifest_of(Path(name.removeprefix(EXACT_LOGITS)), LanguageManifest)
        label = f"{EXACT_LOGITS if exact else ''}{manifest.precision}"
        size = step_bytes(manifest, exact=exact)
    summary = reference.summary(side)
    return Quality(
        name=label,
        is_hearth=not isinstance(side, LlamaSide),
        step_bytes=size,
        types=dict(types.most_common()),
        positions=summary.positions,
        kl_mean=summary.kl_mean,
        kl_error=summary.kl_error,
        kl_median=summary.kl_median,
        agreement=summary.agreement,
    )


def measured(
    reference: str, names: Sequence[str], every: int, threads: int, earlier: Sequence[Quality]
) -> Iterator[Quality]:
    """Read the reference, then measure each model in turn. Raises what `opened` does.

    Raises SideError if an earlier figure is of another number of positions.
    """
    options = SideOptions(
        threads=threads, llama_context=_LLAMA_CONTEXT, top=1, vocabulary=None, key=None
    )
    with tempfile.TemporaryDirectory(prefix="hearth-") as folder:
        with opened(reference, options) as side:
            if side.vocabulary is None:
                raise SideError(f"{reference} has no tokenizer; expected a bundle or a GGUF file")
            vocabulary = side.vocabulary
            passages = [
                text_passage(title, text, vocabulary, None)
                for title, text in shipped_texts().items()
            ]
            known = Reference.of(side, passages, every, Path(folder) / "logits")
        for one in earlier:
            if one.positions != len(known.logits):
                raise SideError(
                    f"an earlier {one.name} has {one.positions} positions, "
                    f"expected {len(known.logits)}; give the same --every"
                )
        for name in names:
            with opened(name, options) as side:
                result = quality(name, side, known)
            yield result


def read_earlier(path: Path, reference: str) -> list[Quality]:
    """The figures of a file of --json; raises SideError if its reference is another."""
    data = json.loads(path.read_bytes())
    if data["reference"] != Path(reference).name:
        raise SideError(
            f"{path} has the reference {data['reference']}, expected {Path(reference).name}"
        )
    return [Quality(**one) for one in data["models"]]


def table_of(models: Sequence[Quality]) -> Table:
    """A row for each model."""
    return Table(
        title=f"KL divergence from the reference, {models[0].positions} positions",
        headings=("", "MB per token", "mean", "standard error", "median", "same top", "matrices"),
        rows=tuple(
            (
                f"{'Hearth' if one.is_hearth else 'llama.cpp'} {one.name}",
                f"{one.step_bytes / 1e6:.1f}",
                f"{one.kl_mean:.3g}",
                f"{one.kl_error:.2g}",
                f"{one.kl_median:.3g}",
                f"{one.agreement:.1%}",
                ", ".join(f"{count} {name}" for name, count in one.types.items()),
            )
            for one in models
        ),
    )


def write_files(options: argparse.Namespace, machine: Machine, models: Sequence[Quality]) -> None:
    """Write the files of --json and --svg."""
    if options.json is not None:
        write_json(
            options.json,
            machine,
            versions=versions(),
            reference=Path(options.reference).name,
            models=[asdict(one) for one in models],
        )
    if options.svg is not None:
        points = [
            SizePoint(
                name=one.name,
                is_hearth=one.is_hearth,
                kl=one.kl_mean,
                megabytes=one.step_bytes / 1e6,
            )
            for one in models
        ]
        kl_by_bytes(options.svg, points)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write the files after each model, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="python -m benchmarks.kl_by_bytes",
    )
    parser.add_argument("reference", help="a bundle or GGUF file in f32")
    parser.add_argument("models", nargs="+", help="BUNDLE, exact:BUNDLE or FILE.gguf")
    parser.add_argument("--every", type=int, default=4, help="compare each n-th position")
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--earlier", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    machine = describe_machine(options.threads)
    progress = Console(stderr=True, highlight=False, soft_wrap=True)
    try:
        models = [one for path in options.earlier for one in read_earlier(path, options.reference)]
        for one in measured(
            options.reference, options.models, options.every, options.threads, models
        ):
            models = sorted([*models, one], key=lambda model: model.step_bytes)
            progress.print(f"{one.name}: {one.kl_mean:.3g}")
            write_files(options, machine, models)
    except _ERRORS as error:
        sys.exit(f"kl_by_bytes: {error}")
    print_table(table_of(models))


if __name__ == "__main__":
    main()
