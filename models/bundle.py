"""The bundle: the contract between the baker, which writes it, and the server, which reads it.

A bundle is a directory::

    manifest.json    what is in the bundle, and everything needed to run it (the dataclasses below)
    model.vmfb       the compiled entry points
    params.irpa      the weights
    tokenizer.json   as the `tokenizers` library reads it
    chat_template.jinja   only when the weights came with one
    prefix.kv        only when asked for: KV rows of a prompt, as server/runtime/blocks.py reads it

This file knows the standard library only: no arrays, no runtime, no compiler.

The entry points of a bundle all have one of three forms. `CACHES` stands for the KV cache buffers
of one slot, in the order of `Manifest.caches`; they are updated in place and returned again.

    prefill   (tokens i32[T], start i32[1], CACHES) -> CACHES
    decode    (tokens i32[B], positions i32[B], CACHES of slot 0, ... of slot B-1)
              -> (logits f32[B, V], CACHES of slot 0, ...)
    embed     (tokens i32[T], start i32[1], count i32[1], CACHES) -> (sum f32[E], CACHES)

A prefill reads T tokens at positions start, start + 1, ... of which the last may be padding: what
they leave in the caches is never seen. The last token of a prompt is read by a decode, which gives
the logits after it.

An embed reads as a prefill does, and gives the sum of the hidden states, after the last norm, of
its first `count` tokens; the others are padding. There is one, of the largest prefill's size.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import types
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeVar

FORMAT = 2
MANIFEST = "manifest.json"
VMFB = "model.vmfb"
PARAMETERS = "params.irpa"
TOKENIZER = "tokenizer.json"
CHAT_TEMPLATE = "chat_template.jinja"
PREFIX = "prefix.kv"
# The scope under which the compiled program looks its parameters up.
PARAMETER_SCOPE = "model"

T = TypeVar("T")


class BundleError(Exception):
    """A bundle cannot be used. The message says what is wrong with it and what to do.

    BundleError
     +- NotABundle        no readable manifest there
     +- WrongFormat       written by another version of Hearth
     +- Corrupt           a file is missing, or its size or digest is not the manifest's
    """


class NotABundle(BundleError):
    """The path holds no readable manifest."""


class WrongFormat(BundleError):
    """The manifest is of a format that this version does not read."""


class Corrupt(BundleError):
    """A file of the bundle is missing or differs from what the manifest says."""


@dataclass(frozen=True, kw_only=True)
class CacheSpec:
    """One KV cache buffer of one slot: `rows` positions of `width` values of `dtype`."""

    name: str
    rows: int
    width: int
    dtype: Literal["f32"]

    @property
    def bytes(self) -> int:
        """The size of the buffer."""
        return self.rows * self.width * 4


@dataclass(frozen=True, kw_only=True)
class EntryPoint:
    """A compiled function: `decode` takes `batch` x 1 tokens, the others 1 x `tokens`.

    It looks at positions below `keys` only, so all that it reads must lie there.
    """

    name: str
    kind: Literal["prefill", "decode", "embed"]
    batch: int
    tokens: int
    keys: int


@dataclass(frozen=True, kw_only=True)
class Target:
    """The machine that the program was compiled for.

    `features` are the CPU features it needs, by LLVM's names (avx2, avx512vnni, dotprod, i8mm).
    """

    name: str
    triple: str
    cpu: str
    features: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SpecialTokens:
    """The ids that the server must know: `bos` goes in front, `eos` ends an answer."""

    bos: int | None
    eos: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class GoldenStep:
    """The largest logits after one position, best first, as NumPy computed them."""

    token_ids: tuple[int, ...]
    logits: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Golden:
    """A prompt and its greedy continuation: step k holds the best logits before token k.

    The answer of a right bundle is `steps[k].token_ids[0]` at each step k.
    """

    prompt: str
    prompt_ids: tuple[int, ...]
    steps: tuple[GoldenStep, ...]


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """A file of the bundle, or a file that the bundle was made from."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Compiler:
    """What made model.vmfb."""

    name: str
    version: str
    flags: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything that the server must know about a bundle, and where the bundle came from.

    `config` has keys of the architecture's own, and with every one `hidden`, the width of a hidden
    state. `context` is in tokens; `tolerance` is the largest difference from the golden logits that
    the bundle's precision explains.
    """

    format: int
    hearth: str
    architecture: str
    config: dict[str, Any]
    precision: str
    vocab_size: int
    context: int
    slots: int
    tolerance: float
    special_tokens: SpecialTokens
    caches: tuple[CacheSpec, ...]
    entry_points: tuple[EntryPoint, ...]
    target: Target
    compiler: Compiler
    statistics: dict[str, int]
    golden: tuple[Golden, ...]
    sources: tuple[FileRecord, ...]
    files: tuple[FileRecord, ...]

    @property
    def hidden(self) -> int:
        """E, the width of a hidden state."""
        return int(self.config["hidden"])

    def to_json(self) -> str:
        """The text of manifest.json."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n"

    @staticmethod
    def from_json(text: str) -> Manifest:
        """Read manifest.json's text; raises NotABundle or WrongFormat, naming the field."""
        try:
            data = json.loads(text, parse_constant=_refuse_constant)
        except ValueError as error:
            raise NotABundle(f"{MANIFEST} is not JSON: {error}") from error
        found = data.get("format") if isinstance(data, dict) else None
        if found != FORMAT:
            raise WrongFormat(
                f"the bundle has format {found!r}, this version of Hearth reads {FORMAT}: "
                "bake it again"
            )
        return _typed(Manifest, data, MANIFEST)


def read_manifest(bundle: Path) -> Manifest:
    """Read a bundle's manifest without looking at the other files."""
    try:
        text = (bundle / MANIFEST).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotABundle(f"{bundle} is not a bundle: cannot read {MANIFEST}: {error}") from error
    return Manifest.from_json(text)


def verify_files(bundle: Path, manifest: Manifest) -> None:
    """Compare every file's size and sha256 with the manifest; raises Corrupt."""
    for record in manifest.files:
        if Path(record.name).name != record.name:
            raise Corrupt(f"{MANIFEST} names {record.name!r}, a file outside the bundle")
        path = bundle / record.name
        if not path.is_file():
            raise Corrupt(f"{path} is missing: copy the whole bundle again")
        if path.stat().st_size != record.bytes:
            raise Corrupt(
                f"{path} has {path.stat().st_size} bytes, the manifest says {record.bytes}: "
                "copy the bundle again"
            )
        if record_file(path).sha256 != record.sha256:
            raise Corrupt(f"{path} differs from what was baked (sha256): copy the bundle again")


def digest(manifest: Manifest) -> str:
    """What a bundle is, in 64 hex digits: its manifest, which has the digest of every file."""
    return hashlib.sha256(manifest.to_json().encode()).hexdigest()


def record_file(path: Path) -> FileRecord:
    """Name, size and sha256 of a file."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return FileRecord(name=path.name, bytes=path.stat().st_size, sha256=sha256)


def write_manifest(bundle: Path, manifest: Manifest) -> None:
    """Write the manifest, the last file of a bundle, so that it is on disk whole or not at all."""
    temporary = bundle / (MANIFEST + ".part")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(bundle / MANIFEST)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _typed(kind: type[T], value: Any, where: str) -> T:
    """JSON data as the dataclass, tuple or scalar `kind`; raises NotABundle naming `where`."""
    return typing.cast("T", _convert(kind, value, where))


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _convert_record(kind, value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_convert(arguments[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if origin is Literal and value in arguments:
        return value
    if origin is dict and isinstance(value, dict):
        return value
    if origin is types.UnionType and type(value) in arguments:
        return value
    if kind is float and type(value) in (int, float):
        return float(value)
    if kind in (int, str) and type(value) is kind:
        return value
    raise NotABundle(f"{where}: expected {getattr(kind, '__name__', kind)}, got {value!r:.80}")


def _convert_record(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise NotABundle(f"{where}: expected an object, got {value!r:.80}")
    hints = typing.get_type_hints(kind)
    for name in hints.keys() ^ value.keys():
        problem = "missing" if name in hints else "unknown"
        raise NotABundle(f"{where}.{name}: {problem} field")
    return kind(
        **{name: _convert(hint, value[name], f"{where}.{name}") for name, hint in hints.items()}
    )
