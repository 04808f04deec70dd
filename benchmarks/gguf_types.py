"""Measure each type of GGUF: its bytes, its values, and the KL divergence that computing costs.

    python -m benchmarks.wide_weights SmolLM2-135M-Instruct.Q4_1.gguf wide.gguf
    llama-imatrix -m wide.gguf -f TEXT -o wide.imatrix
    python -m benchmarks.gguf_types wide.gguf --llama-quantize PATH --imatrix wide.imatrix \\
        --llama-bench "ik_llama.cpp=PATH/llama-bench -rtr 1" --out types --json types.json

llama-quantize writes the model with all its matrices in a type, and the values of that file in F32,
which llama.cpp reads as the reference. `hearth bake` keeps the file's bits. The largest difference
is that between a weight of the bundle and llama.cpp's value of it. The KL divergences are from the
reference: the bundle's, also with every logit exact, and llama.cpp's on the quantized file. Speeds
are medians of `benchmarks.decode` on the pair. What was measured of a type is kept in OUT, so a
second run measures what is missing. Files and bundles are deleted, unless --keep-files
leaves them in OUT for a second run, which measures speeds on a quiet machine. Needs the extra
`compare`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.engines.decode_rounds import DECODE
from benchmarks.inputs import existing_path
from benchmarks.report.figures import medians
from benchmarks.report.machine import describe_machine, versions, versions_line, write_json
from hearthd.baker.memory_bandwidth import physical_cores
from hearthd.baker.parameters.native import NATIVE
from hearthd.baker.parameters.quantization import encoded_integers
from hearthd.baker.presentation.table import Table, print_table
from hearthd.baker.tuning.bundle_weights import stored_values
from hearthd.baker.weights.gguf import GgufSource, tensor_ranges
from hearthd.bundle import PARAMETERS
from hearthd.models.dsl.storage import STORAGES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# What llama-quantize is told for mixes, as popular uploads have them. A dense model has no experts,
# so the feed-forward layers stand for them.
MIXES: Mapping[str, Sequence[str]] = {
    "Q4_K_M": ("Q4_K_M",),
    "UD-Q4_K_XL": (
        *("--tensor-type", "attn_v=q6_k", "--tensor-type", "ffn_down=q5_k"),
        *("--tensor-type", "attn_k=q5_k", "Q4_K_M"),
    ),
    "UD-IQ2_M": (
        *("--tensor-type", "attn_v=q4_k", "--tensor-type", "ffn_down=iq3_xxs"),
        *("--tensor-type", "attn_output=iq3_s", "IQ2_M"),
    ),
    "MXFP4_MOE": ("--tensor-type", "ffn_(gate|up|down)=mxfp4", "MXFP4_MOE"),
    "QAT-Q4_0": ("--token-embedding-type", "q6_k", "Q4_0"),
}
_SPEEDS = (DECODE, "prefill_512")
HEARTH = (sys.executable, "-m", "hearthd")
_QUALITY = (
    "Type",
    "Bytes a weight",
    "Bundle over file",
    "Largest difference of a weight",
    "KL of Hearth",
    "with exact logits",
    "KL of llama.cpp",
)
_HEADINGS = (
    *_QUALITY,
    "Decode, tokens/s",
    "against ik_llama.cpp",
    "Prefill of 512, tokens/s",
    "against ik_llama.cpp",
)


def quantize(options: argparse.Namespace, source: Path, out: Path, *how: str) -> None:
    """Have llama-quantize write a file; `how` are its options and the name of the base."""
    imatrix = ["--imatrix", options.imatrix] if options.imatrix else []
    _run([options.llama_quantize, *imatrix, *how[:-1], source, out, how[-1]])


def recipe_of(name: str) -> Sequence[str]:
    """What llama-quantize is told for a type or a mix."""
    return MIXES.get(name) or ("--pure", "--tensor-type", f".*={name.lower()}", "Q8_0")


def matrices(source: GgufSource) -> list[str]:
    """The names of the quantized tensors."""
    return [name for name in source.names() if source.dtype(name) in NATIVE]


def has_parts(dtype: str) -> bool:
    """Whether a head of a type is multiplied in two parts, so that most logits are approximate."""
    stored = STORAGES[NATIVE[dtype]].format
    assert stored is not None, "a type of GGUF has blocks"
    return (stored.table or stored).split is not None


def stored_bytes(file: Path) -> dict[str, int]:
    """The bytes of each tensor of a GGUF file."""
    ranges = tensor_ranges(file)
    assert ranges is not None, "the file is complete"
    return {name: len(range_) for name, range_ in ranges.items()}


def largest_difference(quantized: Path, exact: Path) -> float:
    """The largest difference between a bundle's stored values and llama.cpp's."""
    source, reference = GgufSource(quantized), GgufSource(exact)
    largest = 0.0
    for name in matrices(source):
        storage = STORAGES[NATIVE[source.dtype(name)]]
        blocks = zip(source.integer_blocks(name), reference.blocks(name), strict=True)
        for block, values in blocks:
            stored = stored_values(storage, encoded_integers(storage, block))
            largest = max(largest, float(np.abs(stored - values).max()))
    return largest


def divergence(options: argparse.Namespace, reference: Path, candidate: str) -> float:
    """The mean KL divergence of a candidate from the reference, by `hearth compare`."""
    folder = options.out / "compare"
    texts = ["--positions", options.positions, "--answers", 0, "--threads", options.threads]
    _run([*HEARTH, "compare", reference, candidate, "--out", folder, *texts])
    report = json.loads((folder / "report.json").read_bytes())
    return float(report["texts"]["kl_mean"])


@contextlib.contextmanager
def baked(options: argparse.Namespace, name: str) -> Iterator[tuple[Path, Path]]:
    """A GGUF file whose matrices have a type, and its bundle, until the end of the block."""
    file, bundle = options.out / f"{name}.gguf", options.out / name
    if not bundle.exists():
        bake(options, name, file, bundle)
    yield file, bundle
    if not options.keep_files:
        file.unlink()
        shutil.rmtree(bundle)


def bake(options: argparse.Namespace, name: str, file: Path, bundle: Path) -> None:
    """Write the GGUF file whose matrices have a type, and its bundle."""
    quantize(options, options.source, file, *recipe_of(name))
    types = {GgufSource(file).dtype(tensor) for tensor in matrices(GgufSource(file))}
    if name in NATIVE and types != {name}:
        raise ValueError(f"{file}: got matrices of {sorted(types)}, expected {name} alone")
    serving = ["--slots", "1", "--context", "2048", "--verify-later"]
    _run([*HEARTH, "bake", file, *serving, "--out", bundle])


def quality(options: argparse.Namespace, file: Path, bundle: Path) -> dict[str, float]:
    """The bytes and the values of a file and its bundle, and KL divergences."""
    exact = options.out / "exact.gguf"
    quantize(options, file, exact, "--allow-requantize", "F32")
    source, sizes = GgufSource(file), stored_bytes(file)
    weights = sum(math.prod(source.shape(tensor)) for tensor in matrices(source))
    result = {
        "bytes": sum(sizes[tensor] for tensor in matrices(source)) / weights,
        "bundle": (bundle / PARAMETERS).stat().st_size / sum(sizes.values()),
        "difference": largest_difference(file, exact),
    }
    result["kl"] = divergence(options, exact, str(bundle))
    result["kl_llama"] = divergence(options, exact, str(file))
    approximate = any(has_parts(source.dtype(tensor)) for tensor in matrices(source))
    result["kl_exact"] = (
        divergence(options, exact, f"exact:{bundle}") if approximate else result["kl"]
    )
    exact.unlink()
    return result


def speed(options: argparse.Namespace, file: Path, bundle: Path) -> dict[str, float]:
    """Speeds of the bundle, and of the file in the program of --llama-bench if it has the type."""
    out = options.out / "speed.json"
    models = ["--pair", f"{bundle}={file}"]
    if bundle.name in options.not_in_bench:
        models = ["--alone", str(bundle)]
    limits = ["--rounds", options.rounds, "--tokens", 700, "--max-depth", 128]
    bench = ["--llama-bench", options.llama_bench]
    _run([sys.executable, "-m", "benchmarks.decode", *models, *limits, *bench, "--json", out])
    rounds = json.loads(out.read_bytes())["rounds"]
    result: dict[str, float] = {}
    for model, measured in rounds.items():
        theirs = "their_" if model.startswith(file.name) else ""
        result |= {theirs + figure: medians(measured)[figure] for figure in _SPEEDS}
    return result


def measure(options: argparse.Namespace, name: str) -> dict[str, float]:
    """The figures of a type, from the files in OUT; measure what OUT lacks."""
    steps = {"quality": quality} | ({"speed": speed} if options.llama_bench else {})
    files = {step: options.out / f"{name}.{step}.json" for step in steps}
    if missing := [step for step, path in files.items() if not path.exists()]:
        with baked(options, name) as (file, bundle):
            for step in missing:
                result = steps[step](options, file, bundle)
                files[step].write_text(json.dumps(result), encoding="utf-8")
    return {
        key: value
        for path in files.values()
        for key, value in json.loads(path.read_bytes()).items()
    }


def row_of(name: str, measured: Mapping[str, float]) -> tuple[str, ...]:
    """The cells of a type; a speed that was not measured is an empty one."""
    cells = [
        name,
        f"{measured['bytes']:.4g}",
        f"{measured['bundle']:.3f}",
        f"{measured['difference']:.2g}",
        *(f"{measured[key]:.2g}" for key in ("kl", "kl_exact", "kl_llama")),
    ]
    for figure in _SPEEDS:
        speed_here, theirs = measured.get(figure), measured.get(f"their_{figure}")
        cells.append("" if speed_here is None else f"{speed_here:.0f}")
        cells.append("" if speed_here is None or theirs is None else f"x {speed_here / theirs:.2f}")
    return tuple(cells)


def table_of(title: str, rows: Mapping[str, Mapping[str, float]]) -> Table:
    """A row for each type, without the columns of speeds if none was measured."""
    cells = [row_of(name, row) for name, row in rows.items()]
    count = len(_HEADINGS) if any(row[-2] for row in cells) else len(_QUALITY)
    return Table(title=title, headings=_HEADINGS[:count], rows=tuple(row[:count] for row in cells))


def _run(command: Sequence[object]) -> None:
    result = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {result.stdout}{result.stderr}")


def main() -> None:
    """Measure the types, print the table and write the JSON file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=existing_path, help="GGUF file in F32")
    parser.add_argument("--llama-quantize", required=True, metavar="PATH")
    parser.add_argument(
        "--imatrix", type=existing_path, help="importance matrix, which IQ1 and IQ2 need"
    )
    parser.add_argument(
        "--types",
        nargs="+",
        choices=[*NATIVE, *MIXES],
        default=[*NATIVE],
        metavar="TYPE",
        help=f"types, or mixes: {', '.join(MIXES)} (default: all types)",
    )
    parser.add_argument("--positions", type=int, default=200, help="tokens of each text")
    parser.add_argument("--threads", type=int, default=physical_cores(), help="of a comparison")
    parser.add_argument("--out", type=Path, required=True, help="folder of files and bundles")
    parser.add_argument("--keep-files", action="store_true", help="keep files and bundles in OUT")
    parser.add_argument("--llama-bench", metavar="NAME=COMMAND", help="as in benchmarks.decode")
    parser.add_argument(
        "--not-in-bench",
        nargs="*",
        choices=NATIVE,
        default=[],
        metavar="TYPE",
        help="types that the program of --llama-bench does not know",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.out.mkdir(exist_ok=True)
    machine = describe_machine(physical_cores())
    rows = {name: measure(options, name) for name in options.types}
    table = table_of(f"Matrices of {options.source.name} in each type or mix", rows)
    print(versions_line(versions()))  # noqa: T201
    print_table(table)
    if options.json:
        write_json(options.json, machine, versions(), [table], types=rows)


if __name__ == "__main__":
    main()
