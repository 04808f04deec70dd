"""The steps of a random program, and where the rules (program_rules.py) find operands for more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hearthd.models.dsl.graph import Input, Tensor
from hearthd.models.dsl.types import DslError, DType, TensorType
from tools.fuzz.compiled.programs import Step, apply, attribute_value

if TYPE_CHECKING:
    from random import Random

MAX_STEPS = 12
MAX_ELEMENTS = 3000
# Extents: mostly small ones, and some around the sizes of tiles.
_AROUND_TILES = (15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65)
_FLOATS = ("f32", "f32", "f32", "f32", "f32", "bf16", "f16")
_FILLS = ("normal", "normal", "normal", "positive", "wide", "ties", "special")


class Maker:
    """The steps so far, with the tensors that they make."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.steps: list[Step] = []
        self.tensors: list[Tensor] = []
        self.dtype = random.choice(_FLOATS)
        self.special = random.random() < 0.2

    def extent(self) -> int:
        if self.random.random() < 0.15:
            return self.random.choice(_AROUND_TILES)
        return self.random.choice((1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 12, self.random.randint(1, 17)))

    def shape(self, rank: int) -> tuple[int, ...]:
        """Extents with at most MAX_ELEMENTS elements together."""
        extents: list[int] = []
        for _ in range(rank):
            extents.append(min(self.extent(), max(1, MAX_ELEMENTS // math.prod(extents))))
        self.random.shuffle(extents)
        return tuple(extents)

    def input(self, shape: tuple[int, ...], dtype: str = "", fill: str = "", limit: int = 0) -> int:
        """A new input's place."""
        fills = _FILLS if self.special else _FILLS[:-1]
        attrs: dict[str, Any] = {
            "shape": list(shape),
            "dtype": dtype or self.dtype,
            "fill": fill or self.random.choice(fills),
            "seed": self.random.randrange(1 << 30),
        }
        if limit:
            attrs["limit"] = limit
        self.steps.append(Step("input", (), attrs))
        self.tensors.append(Tensor(TensorType(shape, DType.named(attrs["dtype"])), Input("x")))
        return len(self.steps) - 1

    def add(self, name: str, *reads: int, **attrs: Any) -> bool:
        """Apply an op or a function; whether the DSL takes it and it is small."""
        try:
            values = {key: attribute_value(key, value) for key, value in attrs.items()}
            tensor = apply(name, [self.tensors[i] for i in reads], values)
        except DslError:
            return False
        if tensor.type.size > MAX_ELEMENTS:
            return False
        self.steps.append(Step(name, reads, attrs))
        self.tensors.append(tensor)
        return True

    def pick(self, minimum: int = 0, maximum: int = 9, *, number: bool = False) -> int:
        """A float (or, with `number`, any) tensor of some rank: rather a late one, or a new one."""
        places = [
            i
            for i, tensor in enumerate(self.tensors)
            if minimum <= tensor.type.rank <= maximum
            and (tensor.dtype.is_float or (number and tensor.dtype is not DType.BOOL))
        ]
        if places and self.random.random() < 0.9:
            return places[-1] if self.random.random() < 0.7 else self.random.choice(places)
        return self.input(self.shape(self.random.randint(minimum, max(minimum, min(maximum, 4)))))

    def like(self, index: int) -> int:
        """A tensor of the same type: another one, the same one, or a new one."""
        type_ = self.tensors[index].type
        same = [i for i, tensor in enumerate(self.tensors) if tensor.type == type_]
        if self.random.random() < 0.5:
            return self.random.choice(same)
        return self.input(type_.shape, type_.dtype.label)

    def float_like(self, index: int, *shape: int) -> int:
        """An input of the same dtype."""
        return self.input(shape, self.tensors[index].dtype.label)

    def axis(self, index: int) -> int:
        return self.random.randrange(self.tensors[index].type.rank)

    def axes(self, index: int) -> list[int]:
        rank = self.tensors[index].type.rank
        return sorted(self.random.sample(range(rank), self.random.randint(1, rank)))
