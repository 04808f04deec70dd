"""The documents that are generated: operators.json for programs, docs/operators.md for people."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hearthd.models.dsl.graph import OPERATORS
from hearthd.models.dsl.ops import NoGradient, Op
from hearthd.models.dsl.registry.definitions import File, first_sentence, read
from hearthd.models.dsl.registry.facts import all_facts
from hearthd.models.dsl.types import COMPILED, FLOATS, NUMBERS, DType

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from hearthd.models.dsl.registry.facts import Facts

COMMAND = "python -m hearthd.models.dsl.registry"
_DSL = Path(__file__).parent.parent
_GROUPS: dict[str, Collection[DType]] = {
    "any": frozenset(DType),
    "number": NUMBERS,
    "float": FLOATS,
}


def documents() -> dict[str, str]:
    """The text of each document, by its path in the repository."""
    facts = all_facts()
    return {"operators.json": _json(facts), "docs/operators.md": _markdown(facts)}


# --- operators.json


def _json(facts: Sequence[Facts]) -> str:
    listed = {
        "$schema": "docs/operators.schema.json",
        "operators": [_operator(entry) for entry in facts],
    }
    text = json.dumps(listed, indent=2, ensure_ascii=False)
    # A list of plain values on one line.
    one_line = re.sub(r"\[[^\[\]{}]+\]", lambda match: " ".join(match[0].split()), text)
    return one_line.replace("[ ", "[").replace(" ]", "]") + "\n"


def _operator(facts: Facts) -> dict[str, Any]:
    signature, gradient = facts.signature, facts.gradient
    return {
        "name": facts.op.name,
        "doc": facts.op.doc,
        "source": f"{facts.module.removeprefix('hearthd.').replace('.', '/')}.py",
        "signature": {
            "inputs": signature.inputs,
            "isOpenEnded": signature.open_ended,
            "attributes": signature.attributes,
            "result": signature.result,
        },
        "dtypes": {
            name: [dtype.label for dtype in taken] for name, taken in signature.dtypes.items()
        },
        "isDifferentiable": not isinstance(gradient, NoGradient),
        "gradient": {"reason": gradient.reason}
        if isinstance(gradient, NoGradient)
        else {"rule": f"{facts.exported}.vjp", "ops": gradient},
        "lowering": facts.lowering,
    }


# --- docs/operators.md


def _markdown(facts: Sequence[Facts]) -> str:
    modules = dict.fromkeys(entry.module for entry in facts)
    ops: dict[str, list[File]] = {}
    for module in modules:
        ops.setdefault(_package(module), []).append(read(_path(module)))
    functions, layers = (
        [read(path) for path in sorted((_DSL / package).glob("[!_]*.py"))]
        for package in ("functions", "nn")
    )
    differentiable = sum(not isinstance(entry.gradient, NoGradient) for entry in facts)
    parts = [
        "# Operators",
        f"Written by `{COMMAND}`: a change made here is lost. For programs: "
        "[operators.json](../operators.json), by [its schema](operators.schema.json).",
        "- What Python's [operators](#operators) on tensors compute\n"
        f"- {len(facts)} ops, {differentiable} with a gradient and {len(facts) - differentiable} "
        f"that say why they have none: {', '.join(_links(*named) for named in ops.items())}\n"
        f"- Functions over ops: {_links('functions', functions)}\n"
        f"- Modules, which own weights: {_links('nn', layers)}",
        _legend(),
        "## operators",
        "A number stands for a tensor of the other's type, filled with it. `x == y` compares "
        "identity, as tensors are keys of mappings: `f.eq` and `f.ne` compare elements.",
        _table(("written", "computes"), _operator_rows()),
    ]
    for module in modules:
        file = read(_path(module))
        rows = [_op_row(entry) for entry in facts if entry.module == module]
        header = ("op", "computes", "gradient", "in MLIR")
        parts += [f"## {_title(_package(module), file)}", file.doc, _table(header, rows)]
    for package, listed in (("functions", functions), ("nn", layers)):
        for file in listed:
            rows = [(f"`{definition.call}`", definition.doc) for definition in file.definitions]
            parts += [f"## {_title(package, file)}", file.doc, _table(("called", "computes"), rows)]
    return "\n\n".join(parts) + "\n"


def _operator_rows() -> list[tuple[str, str]]:
    return [
        (
            f"`{written}`",
            function.doc if isinstance(function, Op) else first_sentence(function.__doc__),
        )
        for written, function in OPERATORS.items()
        if written != "fill"
    ]


def _path(module: str) -> Path:
    return _DSL.parents[2] / f"{module.replace('.', '/')}.py"


def _package(module: str) -> str:
    return module.split(".")[-2]


def _title(package: str, file: File) -> str:
    return f"{package}/{file.name}.py"


def _links(package: str, files: Sequence[File]) -> str:
    """To the headings, whose anchors GitHub makes by dropping punctuation."""
    titles = [(file.name, _title(package, file)) for file in files]
    return ", ".join(f"[{name}](#{re.sub('[^a-z0-9_-]', '', title)})" for name, title in titles)


def _legend() -> str:
    groups = "; ".join(
        f"*{name}*: {', '.join(dtype.label for dtype in DType if dtype in dtypes)}"
        for name, dtypes in _GROUPS.items()
    )
    numpy = ", ".join(dtype.label for dtype in DType if dtype not in COMPILED)
    return (
        "How an op is called: inputs by position, attributes by name. Inputs with the same letter "
        f"have the same dtype. Dtypes are {groups}. {numpy} is NumPy's alone, and is not compiled."
    )


def _op_row(facts: Facts) -> tuple[str, ...]:
    signature, gradient = facts.signature, facts.gradient
    inputs = [*signature.inputs, *(["..."] if signature.open_ended else [])]
    attributes = [f"{name}: {type_name}" for name, type_name in signature.attributes.items()]
    call = f"`{facts.exported}({', '.join(inputs + attributes)}) -> {signature.result}`"
    dtypes = ", ".join(f"{name}: {_group(taken)}" for name, taken in signature.dtypes.items())
    if isinstance(gradient, NoGradient):
        rule = f"none: {gradient.reason}"
    else:
        rule = ", ".join(f"`{name}`" for name in gradient) or "the upstream gradient itself"
    lowering = ", ".join(f"`{name}`" for name in facts.lowering)
    return "<br>".join(filter(None, (call, dtypes))), facts.op.doc, rule, lowering


def _group(dtypes: Collection[DType]) -> str:
    named = [f"*{name}*" for name, group in _GROUPS.items() if set(dtypes) == group]
    return named[0] if named else " ".join(dtype.label for dtype in dtypes)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines
    )
