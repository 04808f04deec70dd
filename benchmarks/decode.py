"""Measure speed, start-up time and memory of bundles and of GGUF files in llama.cpp.

    python -m benchmarks.decode --pair gemma3-270m-int8-g32=q8_0.gguf \\
        --pair gemma3-270m-bf16=bf16.gguf --kl kl/*/report.json --llama-server PATH \\
        --json decode.json --plots plots

A pair is a bundle and a GGUF file of the same quality. exact:BUNDLE is the bundle with all logits
exact, as with `hearth serve --logits exact`. --alone adds a model without a counterpart.

All models read the texts of `hearth compare`. Every measurement is a new process. The models are
interleaved, and every second round has the reverse order, so that other load affects all of them.
Then each model is served: the time from the start to the first token, with files in the page cache,
and the memory after it, with one slot in use. llama.cpp is served by llama-server with one slot.

--llama-bench measures the GGUF files with llama-bench instead, of llama.cpp or of a fork of it, and
may be given several times: --llama-bench "fork=PATH/llama-bench -rtr 1". A table compares each
engine with the bundle.

Before each round, the read bandwidth of the machine is measured. It limits decoding, which reads
all weights for each token. --kl reads reports of `hearth compare F32.gguf MODEL`. llama.cpp may be
installed in another environment: --llama-python names its interpreter. Linux only.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError
from rich.console import Console

from benchmarks.engines.decode_rounds import (
    DECODE,
    BenchmarkError,
    BenchmarkSetup,
    Measurements,
    Model,
    run_rounds,
)
from benchmarks.engines.decode_worker import DEPTHS, PROMPTS, STEPS, TOGETHER
from benchmarks.engines.llama_bench import LlamaBench
from benchmarks.inputs import existing_path
from benchmarks.report.figures import (
    Figure,
    Rounds,
    figures_table,
    medians,
    print_figures,
    rows,
)
from benchmarks.report.machine import (
    Machine,
    describe_machine,
    versions,
    versions_line,
    write_json,
)
from benchmarks.report.speed_plots import ModelPoint, SpeedLine, speed_by, speed_by_kl
from benchmarks.serving.server_commands import version_of
from benchmarks.serving.server_process import ServerFailed
from hearthd.baker.compare.measurement.passages import shipped_texts
from hearthd.baker.compare.report.summary import Report
from hearthd.baker.compare.sides.open_side import EXACT_LOGITS
from hearthd.baker.compare.sides.vocabulary import BundleVocabulary
from hearthd.baker.memory_bandwidth import physical_cores
from hearthd.bundle import BundleError, LanguageManifest, read_manifest_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearthd.baker.presentation.table import Table

FIGURES = (
    Figure(DECODE, "decode, tokens/s", higher_is_better=True),
    Figure("weights_mb", "weights read per token, MB"),
    Figure("limit_percent", "of the bandwidth limit, %", higher_is_better=True),
    *(
        Figure(f"decode_{n}", f"decode after {n} tokens, tokens/s", higher_is_better=True)
        for n in DEPTHS[1:]
    ),
    Figure("decode_together", f"decode of {TOGETHER} sequences, tokens/s", higher_is_better=True),
    *(
        Figure(f"prefill_{n}", f"prefill of {n} tokens, tokens/s", higher_is_better=True)
        for n in PROMPTS
    ),
    Figure("load_s", "load, s"),
    Figure("first_token_s", "first token, s"),
    Figure("resident_mb", "resident memory, MB"),
    Figure("peak_mb", "peak memory, MB"),
    Figure("served_first_s", "server: start to first token, s"),
    Figure("served_mb", "server: resident memory, MB"),
    Figure("kl", "mean KL divergence, nats"),
)


@dataclass(frozen=True, kw_only=True)
class SpeedTarget:
    """The ratios that a model must reach against llama.cpp, at a mean KL of at most `kl`."""

    kl: float
    ratios: Mapping[str, float]


# By the format of llama.cpp, the best of its formats at that quality.
TARGETS = {
    "Q8_0": SpeedTarget(
        kl=0.0035,
        ratios={DECODE: 1.5, "prefill_512": 2, "served_first_s": 0.7, "served_mb": 0.8},
    ),
    "BF16": SpeedTarget(kl=0.0002, ratios={DECODE: 1.1}),
}


def read_kl(reports: Sequence[Path], models: Sequence[Model]) -> dict[str, float]:
    """The mean KL divergence of models on texts, by name, from reports of `hearth compare`.

    Raises BenchmarkError if a report cannot be read, has no texts or is of another model, or if the
    references differ.
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
                f"expected one of {', '.join(names)} on texts"
            )
        references.add(Path(report.a.name).name)
        kl[name] = report.texts.kl_mean
    if len(references) > 1:
        raise BenchmarkError(
            f"the reports have the references {', '.join(sorted(references))}, expected only one"
        )
    return kl


def pair_of(text: str) -> tuple[Model, Model]:
    """Parse BUNDLE=FILE.gguf."""
    ours, equals, theirs = text.rpartition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}: expected BUNDLE=FILE.gguf")
    pair = model_of(ours), model_of(theirs)
    if not pair[0].is_hearth or pair[1].is_hearth:
        raise argparse.ArgumentTypeError(f"{text}: expected the folder of a bundle and a GGUF file")
    return pair


def model_of(text: str) -> Model:
    """Parse the folder of a bundle, with or without exact:, or a GGUF file."""
    path = existing_path(text.removeprefix(EXACT_LOGITS))
    return Model(path=path, exact=text.startswith(EXACT_LOGITS))


def bench_command(text: str) -> LlamaBench:
    """Parse NAME=COMMAND."""
    name, _, command = text.partition("=")
    if not name or not command.split():
        raise argparse.ArgumentTypeError(f"{text}: expected NAME=COMMAND")
    return LlamaBench(name, tuple(shlex.split(command)))


def with_benches(group: Sequence[Model], benches: Sequence[LlamaBench]) -> list[Sequence[Model]]:
    """A pair or a single model once for each bench, if it has a GGUF file and there are benches."""
    if not benches or group[-1].is_hearth:
        return [group]
    return [(*group[:-1], replace(group[-1], bench=bench)) for bench in benches]


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pair", type=pair_of, action="append", default=[], metavar="BUNDLE=FILE.gguf"
    )
    parser.add_argument("--alone", type=model_of, action="append", default=[], metavar="MODEL")
    parser.add_argument("--kl", type=existing_path, nargs="+", default=[], metavar="report.json")
    parser.add_argument("--llama-python", default=sys.executable, metavar="PATH")
    parser.add_argument(
        "--llama-bench", type=bench_command, action="append", default=[], metavar="NAME=COMMAND"
    )
    parser.add_argument("--llama-server", metavar="PATH", help="default: serve only bundles")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--tokens",
        type=int,
        default=DEPTHS[-1] + STEPS,
        help=f"length of the text, at least {DEPTHS[0] + STEPS}; a short one omits deep contexts "
        "and long prompts, which take minutes with large models",
    )
    parser.add_argument(
        "--max-depth",
        type=int,
        choices=DEPTHS,
        default=DEPTHS[-1],
        help="the deepest context in which decoding is measured",
    )
    parser.add_argument(
        "--threads", type=int, default=physical_cores(), help="threads of every engine"
    )
    parser.add_argument(
        "--no-mmap", action="store_true", help="copy Hearth's weights into memory, as hearth serve"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--plots", type=Path, metavar="FOLDER")
    arguments = parser.parse_args()
    if not arguments.pair and not any(model.is_hearth for model in arguments.alone):
        parser.error("expected at least one bundle: --pair or --alone")
    if arguments.tokens < DEPTHS[0] + STEPS:
        parser.error(f"--tokens: got {arguments.tokens}, expected at least {DEPTHS[0] + STEPS}")
    return arguments


def distinct(models: Sequence[Model]) -> list[Model]:
    """The models without duplicates; raises BenchmarkError if two have the same name."""
    by_name = {model.name: model for model in models}
    for model in models:
        if by_name[model.name].path.resolve() != model.path.resolve():
            raise BenchmarkError(
                f"{model.path} and {by_name[model.name].path} have the same name; rename one"
            )
    return list(by_name.values())


def bench_of(arguments: argparse.Namespace, models: Sequence[Model]) -> BenchmarkSetup:
    """How to measure these models; raises BenchmarkError or BundleError.

    All models must have the tokenizer of the first bundle.
    """
    manifests = [read_manifest_of(each.path, LanguageManifest) for each in models if each.is_hearth]
    vocabularies = {manifest.vocab_size for manifest in manifests}
    if len(vocabularies) != 1:
        raise BenchmarkError(
            f"the bundles have vocabularies of {sorted(vocabularies)} tokens, "
            "expected the same for all; measure others in another run"
        )
    contexts = {manifest.context for manifest in manifests}
    if len(contexts) != 1 or min(contexts) < DEPTHS[0] + STEPS:
        raise BenchmarkError(
            f"the bundles have the contexts {sorted(contexts)}, "
            f"expected the same for all, at least {DEPTHS[0] + STEPS}"
        )
    server = arguments.llama_server
    if server is not None and shutil.which(server) is None:
        raise BenchmarkError(f"--llama-server: {server} does not exist")
    tokenizer = BundleVocabulary.of(next(model.path for model in models if model.is_hearth))
    assert tokenizer is not None, "a language model has one"
    text = tokenizer.tokenize(" ".join(shipped_texts().values()))
    repeated = text * -(-arguments.tokens // len(text))
    return BenchmarkSetup(
        tokens=repeated[: arguments.tokens],
        python=arguments.llama_python,
        server=server and shutil.which(server),
        threads=arguments.threads,
        context=contexts.pop(),
        max_depth=arguments.max_depth,
        mapped=not arguments.no_mmap,
    )


@dataclass(frozen=True, kw_only=True)
class Section:
    """A table of a pair of models with goals for their ratios, or of a single model."""

    title: str
    measured: dict[str, Rounds]
    goals: Mapping[str, float]

    @property
    def table(self) -> Table:
        """The section as a table."""
        return figures_table(self.title, FIGURES, self.measured, self.goals)


def section(
    models: Sequence[Model], measurements: Measurements, kl: Mapping[str, float]
) -> Section:
    """The table of a pair, the bundle first, or of a single model."""
    measured = {measurements.heading(model): measurements.rounds[model.name] for model in models}
    target = (
        TARGETS.get(measurements.about[models[-1].name].quantization) if len(models) == 2 else None
    )
    title = " against ".join(measured)
    if target is None:
        return Section(title=title, measured=measured, goals={})
    known = kl.get(models[0].name)
    quality = "unknown (see --kl)" if known is None else f"{known:.2g}"
    title += f"; mean KL divergence {quality} nats, the goals require at most {target.kl:g}"
    is_within = known is None or known <= target.kl
    return Section(title=title, measured=measured, goals=target.ratios if is_within else {})


def write_plots(folder: Path, models: Sequence[Model], measurements: Measurements) -> None:
    """Draw medians: decode-kl.svg, if KL divergences are known, and decode-context.svg."""
    median = {model.name: medians(measurements.rounds[model.name]) for model in models}
    points = [
        ModelPoint(
            name=measurements.build(model),
            is_hearth=model.is_hearth,
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
            name=measurements.heading(model),
            is_hearth=model.is_hearth,
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
    measurements: Measurements,
    sections: Sequence[Section],
) -> None:
    """Write the file of --json."""
    if arguments.json is not None:
        write_json(
            arguments.json,
            machine,
            used,
            [section.table for section in sections],
            models={name: asdict(about) for name, about in measurements.about.items()},
            ratios={
                " against ".join(section.measured): {
                    row.figure.name: {"ratio": row.ratio, "goal": row.goal, "met": row.met}
                    for row in rows(FIGURES, section.measured, section.goals)
                    if row.ratio is not None
                }
                for section in sections
            },
            rounds=measurements.rounds,
        )


def versions_of(measurements: Measurements, server: str | None) -> dict[str, str]:
    """The versions of all engines; `server` is the path of llama-server."""
    used = {
        k: v for about in measurements.about.values() for k, v in about.versions.items()
    } | versions()
    return used if server is None else used | {"llama-server": version_of(server)}


def main() -> None:
    """Measure, print the tables and write the files."""
    arguments = options()
    groups = [
        measured
        for group in (*arguments.pair, *((model,) for model in arguments.alone))
        for measured in with_benches(group, arguments.llama_bench)
    ]
    try:
        models = distinct([model for group in groups for model in group])
        bench = bench_of(arguments, models)
        kl = read_kl(arguments.kl, models)
        machine = describe_machine(bench.threads)
        measurements = run_rounds(models, bench, arguments.rounds, kl, Console(stderr=True))
    except (BenchmarkError, BundleError, ServerFailed) as error:
        sys.exit(f"decode: {error}")
    sections = [section(group, measurements, kl) for group in groups]
    used = versions_of(measurements, bench.server)
    console = Console(soft_wrap=True, highlight=False)
    console.print(f"{machine}; medians of {arguments.rounds} rounds", versions_line(used), sep="\n")
    for table in (section.table for section in sections):
        print_figures(table)
    write_files(arguments, machine, used, measurements, sections)
    if arguments.plots is not None:
        write_plots(arguments.plots, models, measurements)


if __name__ == "__main__":
    main()
