"""Fixtures of the tests of kernels."""

from __future__ import annotations

import pytest

from tests.models.kernels.kernel_library import (
    COMPARED_BY_DAY,
    HERE,
    IN_C,
    INSTRUCTION_SETS,
    NIGHT_SETS,
    BuiltKernels,
    LoadedKernels,
    compared_names,
    kernel_names,
)


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BuiltKernels:
    """The kernels under instruction sets that this machine has, at night all of them, and in C.

    By day the second one has few: see COMPARED_BY_DAY.
    """
    at_night = "nightly" in request.config.option.markexpr
    tested = [*HERE, *IN_C] if at_night else HERE[:1]
    names = {name: kernel_names(whole=at_night) for name in tested}
    if COMPARED_BY_DAY in HERE:
        names.setdefault(COMPARED_BY_DAY, compared_names())
    return BuiltKernels(tmp_path_factory.mktemp("kernels"), names)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give tests of `kernels` an instruction set by day, and the others too at night.

    As parameters of the fixture they would be 10,000 tests that are collected and left out.
    """
    if "kernels" not in metafunc.fixturenames:
        return
    names = INSTRUCTION_SETS if "nightly" in metafunc.config.option.markexpr else HERE[:1]
    parameters = [
        pytest.param(name, marks=[pytest.mark.nightly] if name in NIGHT_SETS else [])
        for name in names
    ]
    metafunc.parametrize("kernels", parameters, indirect=True)


@pytest.fixture
def kernels(request: pytest.FixtureRequest, built: BuiltKernels) -> LoadedKernels:
    if request.param not in built:
        pytest.skip(f"this CPU has no {request.param}")
    return built[request.param]
