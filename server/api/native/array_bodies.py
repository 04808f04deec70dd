"""Arrays in the bodies of requests and answers: JSON or raw bytes.

    JSON   {"function": "run", "inputs": {"x": nested lists of numbers, ...}}
           {"function": "run", "outputs": {"y": nested lists of numbers, ...}}
    raw    application/octet-stream: the arrays as little-endian float32, row-major, without
           padding. Headers hold the function and each array's name and shape, in that order:
           X-Hearth-Function: run
           X-Hearth-Inputs: x=100x1x8, h0=1x1x16
           X-Hearth-Outputs: y=100x1x16, h_n=1x1x16

Inputs are finite. Outputs may not be: JSON has `null` for a value that is not finite.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from hearthd.runtime.array_bytes import from_bytes, to_bytes
from hearthd.server.api.invalid_fields import shown
from hearthd.server.api.json_body import parse_json
from hearthd.text.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

    from hearthd.bundle import ArraySpec, FunctionSpec
    from hearthd.runtime.array_bytes import Arrays

RAW = "application/octet-stream"
FUNCTION = "X-Hearth-Function"
INPUTS = "X-Hearth-Inputs"
OUTPUTS = "X-Hearth-Outputs"

_NUMBERS = {int, float}


class RunRequest(BaseModel):
    """A function and its input arrays. An absent state is zeros."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"function": "step", "inputs": {"x": [[0.5, -0.25]]}}]},
    )

    function: str = Field(description="Name of a function in /v1/bundle.", strict=True)
    inputs: dict[str, Any] = Field(description="Arrays by name, as nested lists of numbers.")


class RunResponse(BaseModel):
    """The output arrays of a function."""

    function: str = Field(description="The name of the function.")
    outputs: dict[str, Any] = Field(
        description="Arrays by name, as nested lists of numbers; null for infinity and NaN."
    )


@dataclass(frozen=True)
class Call:
    """A function and arrays that match its inputs."""

    function: FunctionSpec
    inputs: Arrays


def read_json(body: bytes, functions: Mapping[str, FunctionSpec]) -> Call:
    """The call in a body; raises RequestValidationError, HTTPException or InvalidRequest."""
    request = _validated(body)
    function = _function(request.function, functions, "function")
    specs = {spec.name: spec for spec in function.inputs}
    for name, value in request.inputs.items():
        if name not in specs:
            raise InvalidRequest(
                field=f"inputs.{name}", got=shown(value), expected=f"one of {', '.join(specs)}"
            )
    return _call(
        function, {name: _array(value, specs[name]) for name, value in request.inputs.items()}
    )


def read_raw(
    body: bytes, headers: Mapping[str, str], functions: Mapping[str, FunctionSpec]
) -> Call:
    """The call in a body and its headers; raises InvalidRequest."""
    function = _function(headers.get(FUNCTION), functions, FUNCTION)
    specs = list(_named_inputs(headers.get(INPUTS), function))
    try:
        arrays = from_bytes(body, specs)
    except ValueError as error:
        expected = f"{error}, little-endian float32 of {_shapes(specs)}"
        raise InvalidRequest(field="body", got=f"{len(body)} bytes", expected=expected) from error
    return _call(function, arrays)


def write_json(function: FunctionSpec, outputs: Arrays) -> bytes:
    """The body of an answer."""
    lists = {name: _lists(array) for name, array in outputs.items()}
    return json.dumps({"function": function.name, "outputs": lists}, allow_nan=False).encode()


def write_raw(function: FunctionSpec, outputs: Arrays) -> tuple[bytes, dict[str, str]]:
    """The body of an answer and its headers."""
    headers = {FUNCTION: function.name, OUTPUTS: _shapes(function.outputs)}
    return to_bytes(outputs.values()), headers


def _validated(body: bytes) -> RunRequest:
    """Validate the body; raise the same errors as FastAPI does."""
    try:
        data = parse_json(body)
    except json.JSONDecodeError as error:
        problem = {"type": "json_invalid", "loc": ("body", error.pos), "ctx": {"error": error.msg}}
        raise RequestValidationError([problem], body=error.doc) from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"body: not readable JSON: {error}") from error
    try:
        return RunRequest.model_validate(data)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(problems, body=data) from error


def _function(name: str | None, functions: Mapping[str, FunctionSpec], field: str) -> FunctionSpec:
    if name is None or name not in functions:
        raise InvalidRequest(field=field, got=name, expected=f"one of {', '.join(functions)}")
    return functions[name]


def _named_inputs(header: str | None, function: FunctionSpec) -> Iterator[ArraySpec]:
    """The inputs named in a header, in its order."""
    specs = {spec.name: spec for spec in function.inputs}
    remaining = dict(specs)
    for entry in (header or "").split(","):
        name, _, shape = entry.strip().partition("=")
        spec = remaining.pop(name, None)
        if spec is None or shape != _shape(spec):
            raise InvalidRequest(
                field=INPUTS,
                got=None if header is None else shown(entry.strip()),
                expected=f"the inputs in the body with their shapes, of {_shapes(specs.values())}",
            )
        yield spec


def _call(function: FunctionSpec, arrays: dict[str, NDArray[np.float32]]) -> Call:
    """Check that every required input is present and every value finite."""
    for spec in function.inputs:
        field = f"inputs.{spec.name}"
        if spec.name not in arrays:
            if spec.default == "none":
                raise InvalidRequest(field=field, got=None, expected=_described(spec))
            continue
        finite = np.isfinite(arrays[spec.name])
        if not finite.all():
            index = tuple(int(i) for i in np.argwhere(~finite)[0])
            got = shown(float(arrays[spec.name][index]))
            at = "".join(f"[{i}]" for i in index)
            raise InvalidRequest(field=field + at, got=got, expected="a finite 32-bit number")
    return Call(function, arrays)


def _array(value: object, spec: ArraySpec) -> NDArray[np.float32]:
    """Nested lists as an array of exactly the input's shape."""
    numbers: list[int | float] = []
    _flatten(value, spec, 0, f"inputs.{spec.name}", numbers)
    try:
        # A number beyond 32 bits becomes infinite, which _call rejects by its position.
        with np.errstate(over="ignore"):
            return np.array(numbers, np.float64).astype(np.float32).reshape(spec.shape)
    except OverflowError as error:
        raise InvalidRequest(
            field=f"inputs.{spec.name}",
            got="an integer of hundreds of digits",
            expected="finite 32-bit numbers",
        ) from error


def _flatten(
    value: object, spec: ArraySpec, axis: int, field: str, numbers: list[int | float]
) -> None:
    """Append the numbers of nested lists, which have the spec's shape from `axis` on."""
    shape = spec.shape[axis:]
    if not shape:
        if type(value) not in _NUMBERS:
            raise InvalidRequest(field=field, got=shown(value), expected="a number")
        numbers.append(value)  # type: ignore[arg-type]
    elif not isinstance(value, list) or len(value) != shape[0]:
        got = f"a list of {len(value)}" if isinstance(value, list) else shown(value)
        raise InvalidRequest(
            field=field,
            got=got,
            expected=f"a list of {shape[0]}: {_described(spec)}",
        )
    elif len(shape) == 1 and set(map(type, value)) <= _NUMBERS:
        numbers.extend(value)
    else:
        for i, item in enumerate(value):
            _flatten(item, spec, axis + 1, f"{field}[{i}]", numbers)


def _lists(array: NDArray[np.float32]) -> Any:
    finite = np.isfinite(array)
    if finite.all():
        return array.tolist()
    values = array.astype(object)
    values[~finite] = None
    return values.tolist()


def _described(spec: ArraySpec) -> str:
    return f"an array of shape {_shape(spec)}"


def _shape(spec: ArraySpec) -> str:
    return "x".join(map(str, spec.shape))


def _shapes(specs: Iterable[ArraySpec]) -> str:
    return ", ".join(f"{spec.name}={_shape(spec)}" for spec in specs)
