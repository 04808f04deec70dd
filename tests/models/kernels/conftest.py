"""Fixtures of the tests of kernels."""

from __future__ import annotations

import pytest

from hearthd.runtime.cpu_features import cpu_features
from tests.models.kernels.kernel_library import (
    INSTRUCTION_SETS,
    NIGHT_SETS,
    LoadedKernels,
    kernel_names,
)


@pytest.fixture(scope="session")
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, LoadedKernels]:
    """The kernels under each instruction set that this machine has, at night all of them."""
    folder = tmp_path_factory.mktemp("kernels")
    at_night = "nightly" in request.config.option.markexpr
    names = kernel_names(whole=at_night)
    return {
        name: LoadedKernels(cpu, folder, names)
        for name, (cpu, features) in INSTRUCTION_SETS.items()
        if features <= cpu_features() and (at_night or name not in NIGHT_SETS)
    }


@pytest.fixture(
    params=[
        pytest.param(name, marks=[pytest.mark.nightly] if name in NIGHT_SETS else [])
        for name in INSTRUCTION_SETS
    ]
)
def kernels(request: pytest.FixtureRequest, built: dict[str, LoadedKernels]) -> LoadedKernels:
    if request.param not in built:
        pytest.skip(f"this CPU has no {request.param}")
    return built[request.param]
