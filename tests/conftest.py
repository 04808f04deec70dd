"""What several tests share: the real model, baked once a session in each precision asked for."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from baker.pipeline import bake
from baker.recipe import Order, packaged_weights
from baker.weights.open import open_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from baker.weights.source import WeightSource


# A busy machine is no defect of what is tested.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


class Silent:
    """A Progress that says nothing."""

    @contextmanager
    def stage(self, name: str, total: int = 0) -> Iterator[Callable[[int], None]]:  # noqa: ARG002
        yield lambda _: None


def order(out: Path, *, precision: str = "f32", **options: object) -> Order:
    """What `bake gemma3 --precision ... --out ...` asks for."""
    asked = {
        "model": "gemma3",
        "weights": None,
        "size": None,
        "target": "host",
        "context": None,
        "slots": None,
        "prefix": None,
    }
    return Order(**{**asked, "precision": precision, "out": out, **options})  # type: ignore[arg-type]


def packaged(model: str) -> WeightSource:
    """The weights of a model that are installed with the extras."""
    return open_weights(packaged_weights(order(Path(), model=model)))


class Bundles:
    """Real bundles by precision, each baked when first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._baked: dict[str, Path] = {}

    def __getitem__(self, precision: str) -> Path:
        if precision not in self._baked:
            slots = 8 if precision == "bf16" else 2
            place = order(self._folder / precision, precision=precision, slots=slots)
            self._baked[precision] = bake(place, Silent())
        return self._baked[precision]


@pytest.fixture(scope="session")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> Bundles:
    """Bundles of the real Gemma 3 270M: bundles["f32"], "int8", and "bf16" with eight slots."""
    return Bundles(tmp_path_factory.mktemp("bundles"))
