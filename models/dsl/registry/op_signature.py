"""An op's signature, found by asking its shape rule about its samples in every dtype."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hearthd.models.dsl.ops import Sample
from hearthd.models.dsl.types import DslError, DType, TensorType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from hearthd.models.dsl.ops import Op

# What stands for a dtype that an op leaves open, in the order of its inputs.
_VARIABLES = "TUVW"


@dataclass(frozen=True, kw_only=True)
class OpSignature:
    """The inputs and the output of an op.

    inputs      for each input its dtype, or a variable where it may have several
    open_ended  whether more inputs may follow
    attributes  name -> kind, with a `?` behind it if the attribute may be left out
    result      the result's dtype: one dtype, a variable, or the attribute that decides it
    dtypes      variable or deciding attribute -> the dtypes that it may stand for
    """

    inputs: tuple[str, ...]
    open_ended: bool
    attributes: Mapping[str, str]
    result: str
    dtypes: Mapping[str, tuple[DType, ...]]


@dataclass(frozen=True)
class DTypeSlot:
    """A place for a dtype: inputs that share one, or an attribute that holds one."""

    inputs: tuple[int, ...] = ()
    attribute: str = ""


@dataclass(frozen=True)
class Variant:
    """A sample in dtypes that its op takes: one for each slot, None for one that it lacks."""

    sample: Sample
    dtypes: tuple[DType | None, ...]
    result: TensorType


def signature(op: Op, samples: Sequence[Sample]) -> OpSignature:
    """Raises DslError when the samples leave something open."""
    every = slots(samples)
    taken = [variant for sample in samples for variant in variants(op, sample, every)]
    fewest = min(len(sample.inputs) for sample in samples)
    names: dict[DTypeSlot, str] = {}
    dtypes: dict[str, tuple[DType, ...]] = {}
    for i, slot in enumerate(every):
        if slot.inputs and slot.inputs[0] >= fewest:
            continue  # an input that only some samples have
        seen = tuple(
            dtype for dtype in DType if any(dtype is variant.dtypes[i] for variant in taken)
        )
        names[slot] = slot.attribute or (_VARIABLES[len(dtypes)] if seen[1:] else seen[0].label)
        if slot.attribute or seen[1:]:
            dtypes[names[slot]] = seen
    inputs = [next(names[slot] for slot in names if i in slot.inputs) for i in range(fewest)]
    open_ended = any(len(sample.inputs) > fewest for sample in samples)
    while open_ended and inputs[-2:] == inputs[-1:] * 2:
        inputs.pop()
    return OpSignature(
        inputs=tuple(inputs),
        open_ended=open_ended,
        attributes=_attributes(samples),
        result=_result({every.index(slot): name for slot, name in names.items()}, taken),
        dtypes=dtypes,
    )


def slots(samples: Sequence[Sample]) -> tuple[DTypeSlot, ...]:
    """Inputs that have one dtype in every sample share a slot; an attribute has its own."""
    by_dtypes: dict[tuple[object, ...], list[int]] = {}
    for i in range(max(len(sample.inputs) for sample in samples)):
        column = tuple(sample.inputs[min(i, len(sample.inputs) - 1)].dtype for sample in samples)
        by_dtypes.setdefault(column, []).append(i)
    type_names = _attributes(samples)
    return (
        *(DTypeSlot(inputs=tuple(inputs)) for inputs in by_dtypes.values()),
        *(
            DTypeSlot(attribute=name)
            for name, type_name in type_names.items()
            if type_name in ("dtype", "array")
        ),
    )


def variants(op: Op, sample: Sample, every: Sequence[DTypeSlot]) -> Iterator[Variant]:
    """The sample in combinations of dtypes that the op's shape rule takes.

    They are those that are reached from the sample's, one by one, by giving some slots one dtype:
    all combinations of six slots would be half a million.
    """
    types = [{dtype: TensorType(array.shape, dtype) for dtype in DType} for array in sample.inputs]
    used = [i for i, slot in enumerate(every) if _dtype_of(slot, sample) is not None]
    choices = [
        chosen
        for count in range(1, len(used) + 1)
        for chosen in itertools.combinations(used, count)
    ]
    pending = [tuple(_dtype_of(slot, sample) for slot in every)]
    known = set(pending)
    while pending:
        dtypes = pending.pop()
        inputs, attrs = _inputs_and_attributes(sample, every, dtypes)
        try:
            result = op.infer(tuple(map(dict.__getitem__, types, inputs)), attrs)
        except DslError:
            continue
        arrays = zip(sample.inputs, inputs, strict=True)
        converted = tuple(array.astype(dtype.numpy) for array, dtype in arrays)
        yield Variant(Sample(converted, attrs), dtypes, result)
        for chosen, dtype in itertools.product(choices, DType):
            changed = tuple(dtype if i in chosen else kept for i, kept in enumerate(dtypes))
            if changed not in known:
                known.add(changed)
                pending.append(changed)


def _dtype_of(slot: DTypeSlot, sample: Sample) -> DType | None:
    """The dtype that a slot has in a sample; None for one that it lacks."""
    if slot.attribute:
        value = sample.attrs[slot.attribute]
        return value if isinstance(value, DType) else DType.of(value.dtype)
    first = slot.inputs[0]
    return DType.of(sample.inputs[first].dtype) if first < len(sample.inputs) else None


def _inputs_and_attributes(
    sample: Sample, every: Sequence[DTypeSlot], dtypes: Sequence[DType | None]
) -> tuple[list[DType], dict[str, Any]]:
    """The dtypes of a sample's inputs, and its attributes, with the slots' dtypes in place."""
    inputs = [DType.of(array.dtype) for array in sample.inputs]
    attrs = dict(sample.attrs)
    for slot, dtype in zip(every, dtypes, strict=True):
        if dtype is not None:
            for i in slot.inputs:
                inputs[i : i + 1] = [dtype for _ in inputs[i : i + 1]]
            if slot.attribute:
                attrs[slot.attribute] = _retyped(attrs[slot.attribute], dtype)
    return inputs, attrs


def _retyped(value: Any, dtype: DType) -> Any:
    return dtype if isinstance(value, DType) else value.astype(dtype.numpy)


def _result(names: Mapping[int, str], taken: Sequence[Variant]) -> str:
    """The slot that always has the result's dtype, or the one dtype that all results have."""
    for i, name in names.items():
        if all(variant.result.dtype is variant.dtypes[i] for variant in taken):
            return name
    labels = {variant.result.dtype.label for variant in taken}
    if len(labels) > 1:
        raise DslError(f"its result is one of {', '.join(sorted(labels))}, by no rule")
    return labels.pop()


def _attributes(samples: Sequence[Sample]) -> dict[str, str]:
    """The type of each attribute's value, and whether a sample leaves it out."""
    type_names = {}
    for name in dict.fromkeys(name for sample in samples for name in sample.attrs):
        values = [sample.attrs[name] for sample in samples if name in sample.attrs]
        type_names[name] = _type_name(name, values) + ("?" if len(values) < len(samples) else "")
    return type_names


_TYPE_NAMES: dict[type, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    DType: "dtype",
    np.ndarray: "array",
}


def _type_name(name: str, values: Sequence[Any]) -> str:
    """The kind that all of these values have: `integer`, `dtype`, `integer[][]`, ..."""
    if values and all(isinstance(value, tuple) for value in values):
        return f"{_type_name(name, [item for value in values for item in value])}[]"
    names = {_TYPE_NAMES.get(type(value), "function") for value in values}
    if names == {"integer", "number"}:
        return "number"
    if len(names) != 1:
        raise DslError(f"its samples have {' or '.join(sorted(names)) or 'nothing'} in {name}")
    return names.pop()
