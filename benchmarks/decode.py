"""Our bundles and llama.cpp's files on this machine, interleaved: speed, start, memory.

    python -m benchmarks.decode --pair gemma3-270m-int8-g32=q8_0.gguf \\
        --pair gemma3-270m-bf16=bf16.gguf --kl kl/*/report.json --llama-server PATH \\
        --json decode.json --markdown decode.md --plots docs/images

A pair is a bundle and the file of the same quality that it is measured against; exact:BUNDLE is the
bundle with every logit exact, as by `serve --logits exact`. --alone measures and draws another one.
All read the texts of `ab`. Every measurement is a fresh process (worker.py), the models take
turns, and each round goes the other way through them, so that a busy neighbour hits all. Then each
is served: the time from the start to the first token of an answer, files in the page cache, and the
memory after it, with one slot in use. llama.cpp's is llama-server's, with one slot.

Before each round the machine's read bandwidth is measured. It bounds decoding, which reads all
weights for a token; the caches come on top. What `ab F32.gguf MODEL` found is read by --kl.
llama.cpp may live in another environment: --llama-python names its interpreter. Linux only.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError
from rich.console import Console

from baker.compare.measurement.passages import shipped_texts
from baker.compare.report.summary import Report
from baker.compare.sides.open_side import EXACT_LOGITS
from baker.compare.sides.vocabulary import BundleVocabulary
from benchmarks.engines.decode_rounds import DECODE, Bench, BenchmarkError, Found, Model, run_rounds
from benchmarks.engines.decode_worker import DEPTHS, PROMPTS, STEPS, TOGETHER
from benchmarks.report.figures import (
    Figure,
    Rounds,
    figures_table,
    markdown_figures,
    medians,
    print_figures,
    rows,
)
from benchmarks.report.machine import (
    Machine,
    describe_machine,
    physical_cores,
    versions,
    versions_line,
    write_json,
)
from benchmarks.report.speed_plots import ModelPoint, SpeedLine, speed_by, speed_by_kl
from benchmarks.serving.server_commands import version_of
from benchmarks.serving.server_process import ServerFailed
from models.bundle import BundleError, LanguageManifest, read_manifest_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from baker.presentation.table import Table

FIGURES = (
    Figure(DECODE, "decode, tokens/s", higher_is_better=True),
    Figure("weights_mb", "weights read for a token, MB"),
    Figure("limit_percent", "of the bandwidth's limit, %", higher_is_better=True),
    *(
        Figure(f"decode_{n}", f"decode after {n}, tokens/s", higher_is_better=True)
        for n in DEPTHS[1:]
    ),
    Figure("decode_together", f"{TOGETHER} sequences together, tokens/s", higher_is_better=True),
    *(Figure(f"prefill_{n}", f"prefill of {n}, tokens/s", higher_is_better=True) for n in PROMPTS),
    Figure("load_s", "loaded, s"),
    Figure("first_token_s", "first token, s"),
    Figure("resident_mb", "resident, MB"),
    Figure("peak_mb", "peak, MB"),
    Figure("served_first_s", "served: start to first token, s"),
    Figure("served_mb", "served: resident, MB"),
    Figure("kl", "mean KL divergence, nats"),
)


@dataclass(frozen=True, kw_only=True)
class Target:
    """What a build must reach against llama.cpp's: at a mean KL of at most `kl`, the ratios."""

    kl: float
    ratios: Mapping[str, float]


# By llama.cpp's name for the file: the best of its formats at that quality.
TARGETS = {
    "Q8_0": Target(
        kl=0.0035,
        ratios={DECODE: 1.5, "prefill_512": 2, "served_first_s": 0.7, "served_mb": 0.8},
    ),
    "BF16": Target(kl=0.0002, ratios={DECODE: 1.1}),
}


def read_kl(reports: Sequence[Path], models: Sequence[Model]) -> dict[str, float]:
    """The mean KL divergence of models on texts, by name, from what `ab` wrote.

    Raises BenchmarkError for a report that cannot be read, has no texts, or is of another model,
    and if the reports have not all the same reference.
    """
    names = [model.name for model in models]
    references, kl = set(), {}
    for path in reports:
        try:
            report = Report.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise BenchmarkError(
                f"{path}: expected a report.json of `hearth compare`: {error}"
            ) from error
        exact = EXACT_LOGITS if report.b.name.startswith(EXACT_LOGITS) else ""
        name = exact + Path(report.b.name.removeprefix(EXACT_LOGITS)).name
        if name not in names or report.texts is None:
            raise BenchmarkError(
                f"{path}: {name} on {'answers' if report.texts is None else 'texts'}, "
                f"wanted one of {', '.join(names)} on texts"
            )
        references.add(Path(report.a.name).name)
        kl[name] = report.texts.kl_mean
    if len(references) > 1:
        raise BenchmarkError(f"references {', '.join(sorted(references))}, wanted the same in all")
    return kl


def pair_of(text: str) -> tuple[Model, Model]:
    """BUNDLE=FILE.gguf."""
    ours, equals, theirs = text.rpartition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}, wanted BUNDLE=FILE.gguf")
    pair = model_of(ours), model_of(theirs)
    if not pair[0].ours or pair[1].ours:
        raise argparse.ArgumentTypeError(f"{text}, wanted a bundle's folder and a file")
    return pair


def model_of(text: str) -> Model:
    """A bundle's folder, exact: and one, or a file."""
    model = Model(path=Path(text.removeprefix(EXACT_LOGITS)), exact=text.startswith(EXACT_LOGITS))
    if not model.path.exists():
        raise argparse.ArgumentTypeError(f"{text}: there is no such bundle or file")
    return model


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pair", type=pair_of, action="append", default=[], metavar="BUNDLE=FILE.gguf"
    )
    parser.add_argument("--alone", type=model_of, action="append", default=[], metavar="MODEL")
    parser.add_argument("--kl", type=Path, nargs="+", default=[], metavar="report.json")
    parser.add_argument("--llama-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--llama-server", metavar="PATH", help="else only ours is served")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=physical_cores(), help="of all engines")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="the tables, for a document")
    parser.add_argument("--plots", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if not arguments.pair and not any(model.ours for model in arguments.alone):
        parser.error("wanted a bundle, by --pair or --alone")
    return arguments


def distinct(models: Sequence[Model]) -> list[Model]:
    """The models, each once; raises BenchmarkError if two have one name."""
    by_name = {model.name: model for model in models}
    for model in models:
        if by_name[model.name].path.resolve() != model.path.resolve():
            raise BenchmarkError(f"{model.path}, {by_name[model.name].path}: wanted other names")
    return list(by_name.values())


def bench_of(arguments: argparse.Namespace, models: Sequence[Model]) -> Bench:
    """How to measure these models; raises BenchmarkError or BundleError.

    The text is read by the first bundle's tokenizer, which all must share.
    """
    contexts = {
        read_manifest_of(model.path, LanguageManifest).context for model in models if model.ours
    }
    if len(contexts) != 1 or min(contexts) < DEPTHS[0] + STEPS:
        raise BenchmarkError(
            f"bundles with the contexts {sorted(contexts)}, "
            f"wanted one for all, of at least {DEPTHS[0] + STEPS}"
        )
    server = arguments.llama_server
    if server is not None and shutil.which(server) is None:
        raise BenchmarkError(f"there is no {server}: see --llama-server")
    tokenizer = BundleVocabulary.of(next(model.path for model in models if model.ours))
    assert tokenizer is not None, "a language model has one"
    text = " ".join(shipped_texts().values())
    return Bench(
        tokens=tokenizer.tokenize(text)[: DEPTHS[-1] + STEPS],
        python=arguments.llama_python,
        server=server and shutil.which(server),
        threads=arguments.threads,
        context=contexts.pop(),
    )


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table: a pair of models with what the first must reach, or one that stands alone."""

    title: str
    measured: dict[str, Rounds]
    goals: Mapping[str, float]

    @property
    def table(self) -> Table:
        """The section as a table."""
        return figures_table(self.title, FIGURES, self.measured, self.goals)


def section(models: Sequence[Model], found: Found, kl: Mapping[str, float]) -> Section:
    """The table of a pair, ours first, or of a model alone."""
    measured = {found.heading(model): found.rounds[model.name] for model in models}
    target = TARGETS.get(found.about[models[-1].name].quantisation) if len(models) == 2 else None
    title = " against ".join(measured)
    if target is None:
        return Section(title=title, measured=measured, goals={})
    known = kl.get(models[0].name)
    quality = "unknown: see --kl" if known is None else f"{known:.2g}"
    title += f"; mean KL divergence {quality}, the goals are for at most {target.kl:g}"
    kept = known is None or known <= target.kl
    return Section(title=title, measured=measured, goals=target.ratios if kept else {})


def write_plots(folder: Path, models: Sequence[Model], found: Found) -> None:
    """decode-kl.svg, where a KL is known, and decode-context.svg, of medians."""
    median = {model.name: medians(found.rounds[model.name]) for model in models}
    points = [
        ModelPoint(
            name=found.build(model),
            is_hearth=model.ours,
            kl=median[model.name]["kl"],
            speed=median[model.name][DECODE],
        )
        for model in models
        if "kl" in median[model.name]
    ]
    if points:
        speed_by_kl(folder / "decode-kl.svg", points)
    lines = [
        SpeedLine(
            name=found.heading(model),
            is_hearth=model.ours,
            speeds={
                depth: median[model.name][f"decode_{depth}"]
                for depth in DEPTHS
                if f"decode_{depth}" in median[model.name]
            },
        )
        for model in models
    ]
    speed_by(folder / "decode-context.svg", lines, x_label="tokens in the context", what="decode")


def write_files(
    arguments: argparse.Namespace,
    machine: Machine,
    used: Mapping[str, str],
    found: Found,
    sections: Sequence[Section],
) -> None:
    """What --json and --markdown ask for."""
    if arguments.markdown is not None:
        tables = [markdown_figures(one.table) for one in sections]
        arguments.markdown.write_text(
            "\n".join([f"{machine}\n{versions_line(used)}\n", *tables]), encoding="utf-8"
        )
    if arguments.json is not None:
        write_json(
            arguments.json,
            machine,
            versions=used,
            models={name: asdict(about) for name, about in found.about.items()},
            ratios={
                " against ".join(one.measured): {
                    row.figure.name: {"ratio": row.ratio, "goal": row.goal, "met": row.met}
                    for row in rows(FIGURES, one.measured, one.goals)
                    if row.ratio is not None
                }
                for one in sections
            },
            rounds=found.rounds,
        )


def versions_of(found: Found, server: str | None) -> dict[str, str]:
    """Of all that was measured; `server` is llama-server's path."""
    used = {k: v for about in found.about.values() for k, v in about.versions.items()} | versions()
    return used if server is None else used | {"llama-server": version_of(server)}


def main() -> None:
    """Measure, print the tables, write what was asked for."""
    arguments = options()
    groups = [*arguments.pair, *((model,) for model in arguments.alone)]
    try:
        models = distinct([model for group in groups for model in group])
        bench = bench_of(arguments, models)
        kl = read_kl(arguments.kl, models)
        machine = describe_machine(bench.threads)
        found = run_rounds(models, bench, arguments.rounds, kl, Console(stderr=True))
    except (BenchmarkError, BundleError, ServerFailed) as error:
        sys.exit(f"decode: {error}")
    sections = [section(group, found, kl) for group in groups]
    used = versions_of(found, bench.server)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{machine}; medians of {arguments.rounds} rounds", versions_line(used), sep="\n")
    for one in sections:
        print_figures(one.table)
    write_files(arguments, machine, used, found, sections)
    if arguments.plots is not None:
        write_plots(arguments.plots, models, found)


if __name__ == "__main__":
    main()
