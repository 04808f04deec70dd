"""The documents that are generated from the ops: complete, true to them, and up to date."""

from __future__ import annotations

import copy
import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import numpy as np
import pytest

from hearthd.models.dsl.evaluate import evaluate
from hearthd.models.dsl.ops import REGISTRY, NoGradient, Op, Sample, elementwise
from hearthd.models.dsl.registry.__main__ import main
from hearthd.models.dsl.registry.definitions import read
from hearthd.models.dsl.registry.documents import COMMAND, documents
from hearthd.models.dsl.registry.facts import all_facts
from hearthd.models.dsl.registry.op_signature import slots, variants
from hearthd.models.dsl.types import DslError, DType, NoGradientError
from tests.models.dsl.ops.op_checks import samples_of
from tests.models.graphs import gradient_graph, traced, type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads((ROOT / "docs/operators.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema_rs.Draft202012Validator(SCHEMA)


@pytest.fixture(scope="module")
def operators() -> dict[str, Any]:
    listed: dict[str, Any] = json.loads((ROOT / "operators.json").read_text(encoding="utf-8"))
    return listed


def by_name(operators: dict[str, Any]) -> dict[str, Any]:
    return {operator["name"]: operator for operator in operators["operators"]}


# --- up to date


def test_the_documents_are_up_to_date() -> None:
    assert main(["--check"], ROOT) is None


@pytest.fixture
def written(tmp_path: Path) -> Path:
    assert main([], tmp_path) is None
    assert main(["--check"], tmp_path) is None
    return tmp_path


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["operators.json", "docs/operators.md"])
def test_a_document_that_was_edited_or_deleted_is_seen(written: Path, name: str) -> None:
    """The check says what to run, and writes nothing."""
    path = written / name
    changed = path.read_text(encoding="utf-8").replace("multiply", "multiplied", 1)
    path.write_text(changed, encoding="utf-8")
    assert main(["--check"], written) == f"{name} is stale: run {COMMAND}"
    assert path.read_text(encoding="utf-8") == changed
    path.unlink()
    assert main(["--check"], written) == f"{name} is missing: run {COMMAND}"
    assert not path.exists()
    assert main([], written) is None
    assert main(["--check"], written) is None


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Declare `tanh` anew with changes, or under another name beside it, for one test."""
    before = dict(REGISTRY)

    def declared(*, name: str = "tanh", exported: bool = True, **changes: Any) -> None:
        REGISTRY.pop(name, None)
        monkeypatch.setattr(
            elementwise, name, replace(elementwise.tanh, name=name, **changes), raising=False
        )
        if exported:
            names = sorted({*elementwise.__all__, name})
            monkeypatch.setattr(elementwise, "__all__", names)

    yield declared
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"name": "added"},
        {"vjp": NoGradient("it was forgotten")},
        {"vjp": elementwise.sine.vjp},
        {"doc": "Another sentence."},
        {
            "infer": elementwise.add.infer,
            "samples": elementwise.add.samples,
            "vjp": elementwise.add.vjp,
        },
        {"lower": elementwise.sine.lower},
    ],
    ids=["as it is", "an op more", "a rule removed", "another rule", "doc", "inputs", "lowering"],
)
def test_an_op_that_differs_from_its_document_is_seen(
    declare: Callable[..., None], changes: dict[str, Any]
) -> None:
    declare(**changes)
    assert main(["--check"], ROOT) == (
        f"operators.json is stale, docs/operators.md is stale: run {COMMAND}" if changes else None
    )


def test_an_op_that_its_file_does_not_export_is_refused(declare: Callable[..., None]) -> None:
    declare(name="hidden", exported=False)
    with pytest.raises(DslError, match="hidden is missing in the __all__ of the file"):
        all_facts()


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (
            [Sample((np.ones(2),), {"n": 1}), Sample((np.ones(2),), {"n": "x"})],
            "integer or string in n",
        ),
        ([Sample((np.ones(2),), {"axes": ()})], "nothing in axes"),
        ([Sample((np.ones(2),) * 2)], "expected 1 input, got 2"),
    ],
)
def test_wrong_samples_are_refused(
    declare: Callable[..., None], samples: list[Sample], message: str
) -> None:
    declare(samples=lambda _: samples)
    with pytest.raises(DslError, match=f"tanh: .*{message}"):
        all_facts()


# --- the schema


def test_operators_json_follows_its_schema(operators: dict[str, Any]) -> None:
    jsonschema_rs.meta.validate(SCHEMA)
    VALIDATOR.validate(operators)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            yield from objects(part)


def test_a_key_more_or_less_is_refused(operators: dict[str, Any]) -> None:
    """In every object but the two whose keys are names: attributes and dtypes."""
    listed = {"$schema": operators["$schema"], "operators": [by_name(operators)["gather"]]}
    VALIDATOR.validate(listed)
    changed = copy.deepcopy(listed)
    places = [one for one in objects(changed) if one.keys() not in ({"axis"}, {"T"})]
    assert len(places) == 4  # the whole, an operator, its signature, its gradient
    for place in places:
        place["Extra"] = 1
        assert not VALIDATOR.is_valid(changed)
        del place["Extra"]
        for key in list(place):
            value = place.pop(key)
            assert not VALIDATOR.is_valid(changed), key
            place[key] = value
    VALIDATOR.validate(changed)


@pytest.mark.parametrize(
    "edit",
    [
        lambda one: one.update(isDifferentiable=False),
        lambda one: one.update(gradient={"reason": "none"}),
        lambda one: one.update(doc="no sentence"),
        lambda one: one.update(source="/usr/gather.py"),
        lambda one: one.update(lowering=[]),
        lambda one: one["dtypes"].update(T=["f8"]),
        lambda one: one["dtypes"].update(T=["f32", "f32"]),
        lambda one: one["signature"].update(inputs=["X"]),
        lambda one: one["signature"]["attributes"].update(axis="matrix"),
    ],
)
def test_a_wrong_value_is_refused(
    operators: dict[str, Any], edit: Callable[[dict[str, Any]], None]
) -> None:
    gather = copy.deepcopy(by_name(operators)["gather"])
    edit(gather)
    assert not VALIDATOR.is_valid({"$schema": operators["$schema"], "operators": [gather]})


# --- true to the ops


def test_every_op_is_listed_once(operators: dict[str, Any]) -> None:
    names = [operator["name"] for operator in operators["operators"]]
    assert sorted(names) == sorted(REGISTRY)
    for name, operator in by_name(operators).items():
        op, source = REGISTRY[name], (ROOT / operator["source"]).read_text(encoding="utf-8")
        assert operator["doc"] == op.doc
        assert operator["isDifferentiable"] != isinstance(op.vjp, NoGradient)
        assert f'"{name}"' in source


def test_the_signature_of_an_op_is_derived_from_samples(operators: dict[str, Any]) -> None:
    """A few by hand: open dtypes, a fixed one, an attribute that decides, any number of inputs."""
    entries = by_name(operators)
    every = [dtype.label for dtype in DType]
    assert entries["gather"]["signature"] == {
        "inputs": ["T", "i32"],
        "isOpenEnded": False,
        "attributes": {"axis": "integer"},
        "result": "T",
    }
    assert entries["gather"]["dtypes"] == {"T": every}
    assert entries["select"]["signature"]["inputs"] == ["bool", "T", "T"]
    assert entries["compare"]["signature"]["result"] == "bool"
    assert entries["tanh"]["dtypes"] == {"T": ["f16", "bf16", "f32", "f64"]}
    assert entries["convert"]["dtypes"] == {"T": every, "dtype": every}
    assert entries["convert"]["signature"]["result"] == "dtype"
    assert entries["concatenate"]["signature"]["inputs"] == ["T"]
    assert entries["concatenate"]["signature"]["isOpenEnded"]
    assert entries["slice"]["signature"]["attributes"] == {"bounds": "integer[][]"}
    assert entries["slice"]["gradient"] == {"rule": "slice_.vjp", "ops": ["pad"]}
    assert entries["add"]["gradient"] == {"rule": "add.vjp", "ops": []}
    assert entries["sign"]["gradient"] == {"reason": "its derivative is zero or undefined"}
    assert entries["reduce_sum"]["lowering"] == [
        "stablehlo.constant", "stablehlo.reduce", "stablehlo.add",
    ]  # fmt: skip


@pytest.mark.parametrize("op", REGISTRY.values(), ids=lambda op: op.name)
def test_the_dtypes_of_an_op_are_real(op: Op) -> None:
    """Whatever dtypes the shape rule takes, values and gradients in NumPy have their types."""
    samples = samples_of(op)
    every = [one for sample in samples for one in variants(op, sample, slots(samples))]
    assert len(every) >= len(samples)
    for variant in every:
        inputs, attrs = variant.sample.inputs, variant.sample.attrs
        graph = traced(lambda *tensors, attrs=attrs: op(*tensors, **attrs), inputs)
        with np.errstate(all="ignore"):  # a sample's values may not suit another dtype
            (value,) = evaluate(graph, inputs, {})
            assert type_of(value) == variant.result, f"{op.name} of {variant.dtypes}"
            if variant.result.dtype.is_float and not isinstance(op.vjp, NoGradient):
                with suppress(NoGradientError):  # the body of a scan converts a float
                    evaluate(gradient_graph(graph), [*inputs, np.ones_like(value)], {})


def test_functions_and_modules_are_read_from_their_files(tmp_path: Path) -> None:
    path = tmp_path / "things.py"
    path.write_text(
        '"""Some\nthings. And more."""\n'
        '__all__ = ["Base", "Deep", "f", "g"]\n'
        'def g(x, /, y=(1, 2), *rest, z, w="a"):\n    """G of\n    x. More."""\n'
        'def f(x, *, y=None):\n    """F."""\n'
        "def hidden(): ...\n"
        "class Base:\n    def __init__(self, n, *, m=1): ...\n"
        'class Deep(Base):\n    """Deeper."""\n',
        encoding="utf-8",
    )
    document = read(path)
    assert (document.name, document.doc) == ("things", "Some things.")
    assert [(one.call, one.doc) for one in document.definitions] == [
        ('g(x, y=(1, 2), *rest, z, w="a")', "G of x."),
        ("f(x, *, y=None)", "F."),
        ("Base(n, *, m=1)", ""),
        ("Deep(n, *, m=1)", "Deeper."),
    ]
    path.write_text("def _a(): ...\ndef b(): ...\n", encoding="utf-8")
    assert [one.call for one in read(path).definitions] == ["b()"]


def test_links_lead_to_headings() -> None:
    text = documents()["docs/operators.md"]
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    anchors = ["".join(c for c in heading if c.isalnum() or c in "_-") for heading in headings]
    assert re.findall(r"\]\(#(.+?)\)", text) == anchors


def test_the_functions_are_listed() -> None:
    text = documents()["docs/operators.md"]
    for name in ("softmax(x", "Linear(inputs, ", "reshape(T, shape: "):
        assert f"| `{name}" in text
