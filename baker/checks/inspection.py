"""Show the contents of a bundle and its provenance."""

from __future__ import annotations

from collections import Counter
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.table import Table
from rich.text import Text

from hearthd.bundle import (
    CHAT_TEMPLATE,
    MANIFEST,
    ArraysManifest,
    LanguageManifest,
    NotABundle,
    megabytes,
    read_manifest,
)
from hearthd.bundle.modelfile_text import parameter_lines
from hearthd.flag_names import flag

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from hearthd.bundle import (
        ArraySpec,
        FileRecord,
        Manifest,
        Preset,
        Provenance,
        SourceRecord,
    )

_Rows: TypeAlias = "Sequence[tuple[str, ...]]"
_SHOWN = 200  # characters of a long text
_FIXED = {
    "process": "Python, its libraries and IREE",
    "text": "the tokenizer, and the vocabulary for grammars",
    "grammars": "grammars and tools of requests, compiled",
    "requests": "request bodies in memory, and the longest text that is tokenized",
}


def show_summary(bundle: Path, console: Console) -> None:
    """Print what a user of the bundle wants to know. Raises BundleError."""
    manifest = read_manifest(bundle)
    _print_table(console, bundle.resolve().name, list(_summary_rows(manifest)))


def show(bundle: Path, console: Console) -> None:
    """Print the manifest as tables; reads no other file of the bundle. Raises BundleError."""
    manifest = read_manifest(bundle)
    if isinstance(manifest, ArraysManifest):
        functions = ("functions", list(_function_rows(manifest)))
        facts, memory = _arrays_rows(manifest), list[_Rows]()
    else:
        functions = ("entry points", _entry_point_rows(manifest))
        facts = _language_rows(manifest)
        memory = [list(_memory_rows(manifest))]
    origin = manifest.provenance
    tables: tuple[tuple[str, _Rows], ...] = (
        ("model", [*_model_rows(manifest), *facts]),
        ("programs", list(_program_rows(manifest))),
        *(("memory", rows) for rows in memory),
        ("files", _file_rows(manifest.files)),
        functions,
        ("made by", list(_maker_rows(origin))),
        ("made from", [*_source_rows(origin.sources), ("graph", "", origin.graph[:16])]),
        ("compiler's flags", [(flag,) for flag in origin.compiler.flags]),
    )
    for title, rows in tables:
        _print_table(console, title, rows)


def _print_table(console: Console, title: str, rows: _Rows) -> None:
    table = Table(
        *[""] * max(map(len, rows), default=0),
        title=plain(title),
        title_justify="left",
        show_header=False,
        box=None,
        padding=(0, 2),
    )
    for row in rows:
        table.add_row(*map(plain, row))
    console.print(table, "")


def plain(text: str) -> Text:
    """A text of a file without control characters for the terminal."""
    return Text("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))


def _statistic(manifest: Manifest, name: str) -> int:
    if name not in manifest.statistics:
        raise NotABundle(f"{MANIFEST}.statistics.{name}: missing field")
    return manifest.statistics[name]


def fusions_text(manifest: Manifest, function: str) -> str:
    """The fusions of a function and how often each was applied: "residual_norm x36, ..."."""
    prefix = f"fused.{function}."
    counts = {
        name.removeprefix(prefix): count
        for name, count in manifest.statistics.items()
        if name.startswith(prefix)
    }
    return ", ".join(f"{rule} x{count}" for rule, count in counts.items())


def _summary_rows(manifest: Manifest) -> Iterator[tuple[str, ...]]:
    origin = manifest.provenance
    yield "model", manifest.architecture
    if isinstance(manifest, LanguageManifest):
        yield from _serving_rows(manifest)
    elif isinstance(manifest, ArraysManifest):
        yield "precision", manifest.precision
        yield "functions", ", ".join(function.name for function in manifest.functions)
    yield "size", f"{megabytes(sum(file.bytes for file in manifest.files))} MB on disk"
    yield "runs on", ", ".join(program.text for program in manifest.programs)
    yield "made from", ", ".join(_source(source) for source in origin.sources)
    yield "made by", f"hearth {origin.hearth.text}"


def _serving_rows(manifest: LanguageManifest) -> Iterator[tuple[str, ...]]:
    memory, slots = manifest.memory, manifest.slots
    counts = Counter(manifest.storages.values()).most_common()
    yield "precision", manifest.precision
    if counts:
        yield "matrices", ", ".join(f"{count} in {storage}" for storage, count in counts)
    yield "context", _context(manifest)
    yield "slots", f"{slots}, for requests that run at the same time"
    if manifest.adapters.count:
        yield "adapters", _adapter_places(manifest)
    if manifest.draft_tokens:
        yield "drafter", _drafter(manifest)
    yield (
        "memory",
        f"{_least_memory(manifest)} MB for one slot, at most "
        f"{megabytes(memory.needed(slots, memory.default_prefix_cache))} MB for all and a prefix "
        "cache",
    )
    if manifest.sampling:
        values = (f"{name} {value}" for name, value in manifest.sampling.items())
        yield "sampling", f"{', '.join(values)}, as the weights recommend"
    yield from preset_rows(manifest.preset)
    if not manifest.golden:
        yield "golden", _golden_text(manifest)
    has_template = CHAT_TEMPLATE in {file.name for file in manifest.files}
    yield "chat", "yes" if has_template else "no: it has no chat template"


def preset_rows(preset: Preset) -> Iterator[tuple[str, str]]:
    """What a Modelfile sets; of a text, its beginning."""
    if lines := list(parameter_lines({**preset.sampling, **preset.limits})):
        yield "parameters", ", ".join(lines)
    texts = {"system": preset.system, "license": preset.license}
    texts |= {f"message of {m.role}": m.content for m in preset.messages[:1]}
    for name, text in texts.items():
        if text:
            yield name, shorten(text, _SHOWN, placeholder="...")


def _source(source: SourceRecord) -> str:
    return f"{source.name} of {source.package} {source.version}" if source.package else source.name


def _model_rows(manifest: Manifest) -> list[tuple[str, ...]]:
    return [
        ("architecture", manifest.architecture),
        *((f"  {key}", str(value)) for key, value in manifest.config.items()),
        ("precision", manifest.precision),
        ("kernels", manifest.provenance.kernels.text),
        (
            "weights",
            f"{_statistic(manifest, 'weights_bytes'):,} bytes in "
            f"{_statistic(manifest, 'parameters')} parameters",
        ),
    ]


def _program_rows(manifest: Manifest) -> Iterator[tuple[str, ...]]:
    sizes = {file.name: file.bytes for file in manifest.files}
    for program in manifest.programs:
        target, size = program.target, sizes.get(program.file, 0)
        yield target.name, _bytes(size), program.instructions or "no kernels"
        yield "  file", program.file, ""
        yield "  for", f"{target.triple} {target.cpu}", ""
        yield "  needs", " ".join(target.features), ""


def _language_rows(manifest: LanguageManifest) -> list[tuple[str, ...]]:
    storages = Counter(manifest.storages.values())
    return [
        ("context", _context(manifest)),
        ("slots", f"{manifest.slots}"),
        ("adapters", _adapter_places(manifest)),
        ("drafter", _drafter(manifest)),
        *(("matrices", f"{count} in {storage}") for storage, count in storages.most_common()),
        *((("activations", "int8"),) if manifest.activations == "int8" else ()),
        ("cache", f"{_statistic(manifest, 'cache_bytes_per_slot'):,} bytes per slot"),
        ("golden", _golden_text(manifest)),
    ]


def _golden_text(manifest: LanguageManifest) -> str:
    if not manifest.golden:
        return "none: not compared with NumPy yet, see hearth verify"
    return f"{len(manifest.golden)} prompts, tolerance {manifest.tolerance}"


def _context(manifest: LanguageManifest) -> str:
    less = ", or what the memory of a server allows" if manifest.auto_context else ""
    return f"{manifest.context:,} tokens{less}"


def _least_memory(manifest: LanguageManifest) -> str:
    """MB that a server with one slot needs, with the shortest context that it uses."""
    return megabytes(manifest.memory_of(manifest.min_context).needed(1))


def _adapter_places(manifest: LanguageManifest) -> str:
    adapters = manifest.adapters
    return f"{adapters.count} places of rank {adapters.rank}" if adapters.count else "no places"


def _drafter(manifest: LanguageManifest) -> str:
    if manifest.draft_model is not None:
        config = manifest.draft_model.config
        return (
            f"a draft model, {manifest.draft_model.architecture}, {config.get('layers')} layers of "
            f"width {config.get('hidden')}"
        )
    if any(cache.drafts for cache in manifest.caches):
        return "the layer of the weights that predicts further tokens (MTP)"
    tokens = manifest.draft_tokens
    return f"tuned, drafts {tokens:,} different tokens" if tokens else "none"


def _memory_rows(manifest: LanguageManifest) -> Iterator[tuple[str, ...]]:
    memory, sizes = manifest.memory, manifest.footprint
    yield "laid out when loaded", _bytes(sizes.laid_out), "a private copy in this process"
    yield "read from the file", _bytes(sizes.read), "mapped pages, shared and read in every step"
    if sizes.experts:
        yield "experts", _bytes(sizes.experts), "of these, read ahead when a token needs them"
    yield (
        "looked up in the file",
        _bytes(sizes.looked_up),
        "mapped pages, which the system may drop",
    )
    if memory.adapters:
        yield "adapters", _bytes(memory.adapters), "all places, also those that are free"
    held = "KV caches" if not memory.image_rows else "rows of images, KV caches"
    yield "per slot", _bytes(memory.slot), f"{held} of {manifest.context:,} tokens"
    for name, size in sizes.calls.items():
        yield name, _bytes(size), "while it runs"
    cache = memory.default_prefix_cache
    yield "prefix cache", _bytes(cache), "the default of hearth serve --cache-ram"
    for name, size in memory.parts(1)[:3]:
        yield name, _bytes(size), _FIXED[name]
    yield (
        "one slot",
        f"{_least_memory(manifest)} MB",
        f"the minimum to serve, {manifest.min_context:,} tokens",
    )
    peak = memory.formula(manifest.slots, cache)
    yield "peak while serving", *peak.split(" = ")
    if manifest.max_memory is not None:
        yield "limit", _bytes(manifest.max_memory), "hearth bake --max-memory"


def _bytes(size: int) -> str:
    return f"{size:,} bytes"


def _arrays_rows(manifest: ArraysManifest) -> list[tuple[str, ...]]:
    return [("golden", f"an example of each function, tolerance {manifest.tolerance}")]


def _file_rows(files: Sequence[FileRecord]) -> list[tuple[str, ...]]:
    return [(file.name, f"{file.bytes:,} bytes", file.sha256[:16]) for file in files]


def _source_rows(sources: tuple[SourceRecord, ...]) -> Iterator[tuple[str, ...]]:
    for source, row in zip(sources, _file_rows(sources), strict=True):
        yield (*row, f"{source.package} {source.version}" if source.package else "")


def _maker_rows(origin: Provenance) -> Iterator[tuple[str, ...]]:
    flags = "".join(
        f" {_typed(name, value)}"
        for name, value in origin.options.items()
        if value is not None and value is not False  # 0 is given
    )
    model = origin.model if origin.sources[0].package else "WEIGHTS"
    yield "command", f"hearth bake {model}{flags}"
    yield from (("tried", precision.text) for precision in origin.tried)
    yield "hearth", origin.hearth.text
    yield origin.compiler.name, origin.compiler.version
    yield from origin.tools.items()


def _typed(name: str, value: Any) -> str:
    return flag(name) if value is True else f"{flag(name)} {value}"


def _entry_point_rows(manifest: LanguageManifest) -> list[tuple[str, ...]]:
    return [
        (
            point.name,
            f"{point.batch} x {point.tokens} tokens, positions below {point.keys}",
            f"{sum(_statistic(manifest, f'ops.{name}') for name in point.functions):,} ops",
            fusions_text(manifest, point.name),
        )
        for point in manifest.entry_points
    ]


def _function_rows(manifest: ArraysManifest) -> Iterator[tuple[str, ...]]:
    for function in manifest.functions:
        inputs = ", ".join(
            f"{_array(spec)}{' or zeros' if spec.default == 'zeros' else ''}"
            for spec in function.inputs
        )
        outputs = ", ".join(
            f"{_array(spec)}{f' in place of {spec.takes}' if spec.takes else ''}"
            for spec in function.outputs
        )
        ops = f"{_statistic(manifest, f'ops.{function.name}'):,} ops"
        yield function.name, f"{inputs} -> {outputs}", ops


def _array(spec: ArraySpec) -> str:
    return f"{spec.name} {spec.dtype}{list(spec.shape)}"
