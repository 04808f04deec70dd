"""requirements.lock has one version for each requirement in pyproject.toml, within its range."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# These build from source, bring gigabytes or run on several machines: scripts/lock leaves them out.
NOT_LOCKED = ("compare", "families", "fuzz", "ray", "torch")
REQUIREMENTS = [
    *PROJECT["dependencies"],
    *(
        requirement
        for extra, requirements in PROJECT["optional-dependencies"].items()
        if extra not in NOT_LOCKED
        for requirement in requirements
        if not requirement.startswith("hearthd[")
    ),
]


def locked() -> dict[str, list[str]]:
    """The locked versions by package: more than one where platforms differ."""
    versions: dict[str, list[str]] = {}
    for line in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([\w.-]+)(?:==|~=)(\S+)", line):
            versions.setdefault(canonicalize_name(match[1]), []).append(match[2])
    return versions


@pytest.mark.parametrize("text", sorted(set(REQUIREMENTS)))
def test_the_lock_file_satisfies_every_requirement(text: str) -> None:
    requirement = Requirement(text)
    versions = locked().get(canonicalize_name(requirement.name), [])
    assert versions, f"{requirement.name} is not in requirements.lock: run scripts/lock"
    for version in versions:
        assert requirement.specifier.contains(version), f"{text}: {version}: run scripts/lock"


def test_the_lock_file_allows_newer_patches_of_iree_only() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    loose = [line for line in lines if line[:1].isalpha() and "==" not in line]
    assert [line.split("~=")[0] for line in loose] == ["iree-base-compiler", "iree-base-runtime"]
    for line in loose:
        assert Requirement(line).specifier.contains("3.13.1")
        assert not Requirement(line).specifier.contains("3.14.0")
