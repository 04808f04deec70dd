"""The manifest: write and read, and every way in which a bundle can be broken."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
import types
import typing
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hearthd.bundle import (
    FORMAT,
    MANIFEST,
    NO_PLACES,
    NO_PRESET,
    SEAL,
    AdapterArray,
    AdapterMatrix,
    AdapterPlaces,
    AnyManifest,
    ArraysManifest,
    BundleError,
    CacheSpec,
    Compiler,
    Corrupt,
    EntryPoint,
    FileRecord,
    Footprint,
    FunctionSpec,
    Golden,
    GoldenStep,
    GridInput,
    Hearth,
    ImageInput,
    ImageTiles,
    InputSpec,
    KernelBuild,
    LanguageManifest,
    Manifest,
    NotABundle,
    OutputSpec,
    Preset,
    Provenance,
    Serving,
    SoundInput,
    SourceRecord,
    SpecialTokens,
    Target,
    TriedPrecision,
    WrongFormat,
    WrongKind,
    parse_manifest,
    read_manifest,
    read_manifest_of,
    write_manifest,
)
from tests.bundle.example_manifests import ARRAYS, EXAMPLE, EXAMPLES, PRESET

if TYPE_CHECKING:
    from collections.abc import Iterator


def parsed(example: str = "language") -> dict[str, Any]:
    return dict(json.loads(EXAMPLES[example].to_json()))


def read(data: object) -> AnyManifest:
    return parse_manifest(json.dumps(data))


def test_the_examples_are_read_as_written() -> None:
    for example in EXAMPLES.values():
        assert parse_manifest(example.to_json()) == example
    assert "Hé" in EXAMPLE.to_json()


_NUMBERS = {
    int: st.integers(1, 2**16),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=8),
    bool: st.booleans(),
}


def values_of(type_: Any) -> st.SearchStrategy[Any]:
    """Any value of a manifest's field."""
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if type_ is Footprint:
        sizes = st.integers(0, 2**63 - 1)
        calls = st.dictionaries(st.text(max_size=4), sizes, max_size=2)
        return st.builds(Footprint, laid_out=sizes, read=sizes, looked_up=sizes, calls=calls)
    examples: dict[type, list[Any]] = {
        ImageInput: [EXAMPLE.images],
        GridInput: [EXAMPLE.image_grid],
        SoundInput: [EXAMPLE.sound],
        AdapterPlaces: [NO_PLACES, EXAMPLE.adapters],
        Preset: [NO_PRESET, PRESET],
    }
    if type_ in examples:
        return st.sampled_from(examples[type_])
    if isinstance(type_, type) and dataclasses.is_dataclass(type_):
        hints = typing.get_type_hints(type_)
        fields = {name: values_of(hint) for name, hint in hints.items()}
        if issubclass(type_, Manifest):
            # A subclass may have another kind.
            defaults = {field.name: field.default for field in dataclasses.fields(type_)}
            fields |= {"format": st.just(FORMAT), "kind": st.just(defaults["kind"])}
            fields["other_programs"] = st.just(())  # which must be files: see test_programs.py
        return st.builds(type_, **fields)
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=2).map(tuple)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin is dict:
        values = _NUMBERS[str] if arguments[1] is str else st.integers(-(2**63), 2**63 - 1)
        return st.dictionaries(st.text(max_size=4), values, max_size=2)
    if origin is types.UnionType:
        return st.none() | values_of(arguments[0])
    return _NUMBERS[type_]


@settings(deadline=None, max_examples=40)
@given(values_of(LanguageManifest) | values_of(ArraysManifest))
def test_every_manifest_is_read_as_written(manifest: AnyManifest) -> None:
    assert parse_manifest(manifest.to_json()) == manifest


@settings(max_examples=100)
@given(st.sampled_from(sorted(EXAMPLES)), st.data())
def test_a_flipped_bit_is_detected(example: str, data: st.DataObject) -> None:
    text = bytearray(EXAMPLES[example].to_json().encode())
    bit = data.draw(st.integers(0, 8 * len(text) - 1))
    text[bit // 8] ^= 1 << bit % 8
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / MANIFEST).write_bytes(text)
        with pytest.raises(BundleError, match=r"manifest\.json"):
            read_manifest(Path(folder))


def test_the_last_field_is_the_sha256_of_the_others() -> None:
    lines = EXAMPLE.to_json().splitlines()
    rest = "\n".join([*lines[:-2], lines[-1]]).replace("],\n}", "]\n}")
    assert json.loads(EXAMPLE.to_json())[SEAL] == hashlib.sha256(rest.encode()).hexdigest()


@pytest.mark.parametrize(
    ("old", "new"), [("1e-06", "1E-06"), (' "slots": 2', '  "slots": 2'), ("18", "19")]
)
def test_an_edited_manifest_is_rejected(tmp_path: Path, old: str, new: str) -> None:
    """Even if its values are the same."""
    assert old in EXAMPLE.to_json()
    (tmp_path / MANIFEST).write_text(EXAMPLE.to_json().replace(old, new, 1), encoding="utf-8")
    with pytest.raises(Corrupt, match=r"manifest\.json: wrong sha256"):
        read_manifest(tmp_path)


def test_a_written_manifest_leaves_no_other_file(tmp_path: Path) -> None:
    write_manifest(tmp_path, EXAMPLE)
    assert [path.name for path in tmp_path.iterdir()] == [MANIFEST]
    assert read_manifest(tmp_path) == EXAMPLE


# --- errors


FREE = ("calls", "config", "options", "statistics", "tools")
FLAGS = ("modified", "adapters", "folder_interleaved", "gguf_interleaved")
# Without them, the text differs from what is written.
DEFAULTS = (
    "adapters", "serving", "gguf", "gguf_architecture", "interleaved", "folder_interleaved",
    "gguf_interleaved", "images", "image_grid", "sound", "tile", "line_end", "tiles",
)  # fmt: skip


def objects(value: Any, where: str = MANIFEST) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every record in the manifest's JSON, with its path, but for those with free keys."""
    if isinstance(value, dict):
        yield where, value
        for name, item in value.items():
            if name not in FREE:
                yield from objects(item, f"{where}.{name}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from objects(item, f"{where}[{i}]")


# Where each field of an example is, and its name.
FIELDS = {
    example: [
        (where, name)
        for where, record in objects(parsed(example))
        for name in record
        if (where, name) != (MANIFEST, "format")
    ]
    for example in EXAMPLES
}


def test_the_examples_have_every_field() -> None:
    records = (
        LanguageManifest, SpecialTokens, CacheSpec, EntryPoint, Target, Compiler, Golden,
        GoldenStep, Footprint, FileRecord, ArraysManifest, FunctionSpec, InputSpec, OutputSpec,
        Provenance, SourceRecord, Hearth, KernelBuild, TriedPrecision, AdapterPlaces, AdapterArray,
        AdapterMatrix, Serving, ImageInput, GridInput, ImageTiles, SoundInput,
    )  # fmt: skip
    omitted = {
        "other_programs", "golden_rows", "golden_states", "golden_image", "golden_sound",
        "template_bos", "auto_context", "state", "behind", "drafts", "lent", "lazy", "begin",
        "draft_tokens", "draft_model", "both_ways", "slices", "kept", "fills", "fit", "parts",
        "experts", "token_experts", "expert_arrays", "window", "windows", "padded", "margin",
        "transcripts", "sampling", "suppressed_tokens", "keeps_thin", "own_line", "preset",
    }  # fmt: skip
    names = {name for fields in FIELDS.values() for _, name in fields} | {"format"} | omitted
    assert names == {field.name for record in records for field in dataclasses.fields(record)}


def changed(
    where: str, change: typing.Callable[[dict[str, Any]], object], example: str = "language"
) -> dict[str, Any]:
    data = parsed(example)
    change(dict(objects(data))[where])
    return data


def refusal(example: str, where: str, change: typing.Callable[[dict[str, Any]], object]) -> str:
    """What is said of a manifest in which an object was changed."""
    with pytest.raises(NotABundle) as caught:
        read(changed(where, change, example))
    return str(caught.value)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_missing_field_is_named(example: str) -> None:
    for where, name in FIELDS[example]:
        if name not in DEFAULTS:
            said = refusal(example, where, methodcaller("pop", name))
            assert said.startswith(f"{where}.{name}: missing field")


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_unknown_field_is_named(example: str) -> None:
    for where in sorted({where for where, _ in FIELDS[example]}):
        said = refusal(example, where, methodcaller("update", extra=1))
        assert said == f"{where}.extra: unknown field"


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("value", [True, {"a": [1]}, [[None]]], ids=repr)
def test_a_field_of_a_wrong_type_is_named(example: str, value: object) -> None:
    for where, name in FIELDS[example]:
        is_allowed = (name in FREE and isinstance(value, dict)) or (value is True and name in FLAGS)
        wrong = {name: "another" if is_allowed else value}
        said = refusal(example, where, methodcaller("update", wrong))
        assert said.startswith(f"{where}.{name}")


@pytest.mark.parametrize(
    ("where", "name", "value"),
    [
        (f"{MANIFEST}.caches[0]", "dtype", "f64"),
        (f"{MANIFEST}.entry_points[1]", "kind", "guess"),
        (MANIFEST, "context", 2048.0),
        (MANIFEST, "context", "2048"),
        (MANIFEST, "precision", 16),
        (MANIFEST, "tolerance", "0.1"),
        (MANIFEST, "slots", None),
        (f"{MANIFEST}.special_tokens", "bos", "2"),
        (f"{MANIFEST}.target", "features", "avx2"),
    ],
)
def test_a_wrong_value_is_rejected(where: str, name: str, value: object) -> None:
    with pytest.raises(NotABundle) as caught:
        read(changed(where, lambda record: record.update({name: value})))
    assert str(caught.value).startswith(f"{where}.{name}: got {json.dumps(value)}, expected ")


@pytest.mark.parametrize(("name", "value"), [("slices", 0), ("slices", 2**31), ("kept", -1)])
def test_slices_out_of_range_are_rejected(name: str, value: int) -> None:
    point = f"{MANIFEST}.entry_points[1]"
    with pytest.raises(NotABundle, match=f"{name} of '.*': got {value}, expected "):
        read(changed(point, lambda record: record.update({name: value})))


def test_any_call_can_come_between_two_slices() -> None:
    """So the values between them are in the memory of every step."""
    point = EntryPoint(name="image", kind="image", batch=1, tokens=4, keys=4, slices=2, kept=1000)
    calls = EXAMPLE.footprint.calls | {"image_0": 7, "image_1": 10**9}
    manifest = dataclasses.replace(
        EXAMPLE,
        entry_points=(*EXAMPLE.entry_points, point),
        footprint=dataclasses.replace(EXAMPLE.footprint, calls=calls),
    )
    kept = {batch: size + 1000 for batch, size in EXAMPLE.memory.steps.items()}
    assert manifest.memory.steps == kept | {1: 10**9 + 1000}
    calls.pop("image_1")
    with pytest.raises(NotABundle, match="image_1: missing field"):
        _ = dataclasses.replace(
            manifest, footprint=dataclasses.replace(EXAMPLE.footprint, calls=calls)
        ).memory


def test_an_integer_is_accepted_for_a_float() -> None:
    assert read(parsed() | {"tolerance": 1}).tolerance == 1.0
    without = read(parsed() | {"special_tokens": {"bos": None, "eos": []}})
    assert isinstance(without, LanguageManifest)
    assert without.special_tokens.bos is None


def test_a_bundle_of_an_older_version_has_its_serving_in_the_provenance() -> None:
    def older(**options: object) -> LanguageManifest:
        origin = dataclasses.replace(EXAMPLE.provenance, options=options)
        return dataclasses.replace(EXAMPLE, serving=None, provenance=origin)

    def serving(manifest: LanguageManifest) -> tuple[str, int | None]:
        return manifest.activations, manifest.max_memory

    assert "serving" not in json.loads(older().to_json())
    assert serving(older()) == ("int16", None)
    assert serving(older(activations="int8", max_memory=99)) == ("int8", 99)
    tried = dataclasses.replace(EXAMPLE.provenance.tried[-1], activations="int8")
    origin = dataclasses.replace(EXAMPLE.provenance, tried=(tried,))
    assert serving(dataclasses.replace(EXAMPLE, serving=None, provenance=origin))[0] == "int8"
    for name, value in (("activations", "int4"), ("max_memory", "99"), ("max_memory", 0)):
        with pytest.raises(NotABundle, match=name):
            serving(older(**{name: value}))


def test_an_unknown_kind_is_rejected() -> None:
    with pytest.raises(NotABundle, match=r"kind: got 'images', expected language or arrays"):
        read(parsed() | {"kind": "images"})
    with pytest.raises(NotABundle, match=r"manifest.json.\w+: (missing|unknown) field"):
        read(parsed("arrays") | {"kind": "language"})


def test_a_bundle_of_the_other_kind_is_rejected(tmp_path: Path) -> None:
    write_manifest(tmp_path, ARRAYS)
    assert read_manifest_of(tmp_path, ArraysManifest) == ARRAYS
    with pytest.raises(
        WrongKind, match=r"got a bundle of array functions, expected a language model"
    ):
        read_manifest_of(tmp_path, LanguageManifest)


@pytest.mark.parametrize(
    "data", [{"format": FORMAT - 1}, {"format": str(FORMAT)}, {}, [], 7, None], ids=repr
)
def test_another_format_is_rejected_before_anything_else(data: object) -> None:
    with pytest.raises(
        WrongFormat, match=r"manifest.json: unsupported format: got .*, expected \d+; bake"
    ):
        read(data)


def test_a_file_that_is_not_a_manifest_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(NotABundle, match=r"manifest.json: not JSON"):
        parse_manifest("{")
    with pytest.raises(NotABundle, match=r"cannot read manifest.json"):
        read_manifest(tmp_path)
    with pytest.raises(NotABundle, match=r": not a bundle"):
        read_manifest(tmp_path / "nowhere")
    (tmp_path / MANIFEST).write_bytes(b"\xff\xfe")
    with pytest.raises(NotABundle, match=r": not a bundle"):
        read_manifest(tmp_path)


def test_a_tolerance_of_nan_is_rejected() -> None:
    """No difference is larger than NaN, so every self-test would pass."""
    with pytest.raises(NotABundle, match="NaN"):
        parse_manifest('{"format": 4, "tolerance": NaN}')


@pytest.mark.parametrize(
    ("record", "name", "value"),
    [
        ("", "count", -1),
        ("", "count", 2000),
        (".arrays[0]", "shape", [3, 4, 8]),
        (".arrays[0]", "shape", [2, 0, 8]),
        (".matrices[0]", "down", 2),
        (".matrices[0]", "up", -1),
        (".matrices[0]", "rows", 0),
        (".matrices[0]", "rows", 49),
        (".matrices[0]", "columns", 9),
        (".matrices[0]", "first_term", 1),
        (".matrices[0]", "first_block", 1),
    ],
)
def test_factors_outside_of_their_arrays_are_rejected(
    record: str, name: str, value: object
) -> None:
    with pytest.raises(NotABundle, match=r"manifest\.json\.adapters"):
        read(changed(f"{MANIFEST}.adapters{record}", lambda data: data.update({name: value})))
