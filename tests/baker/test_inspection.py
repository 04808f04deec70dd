"""The command that `hearth inspect` shows for a bundle."""

from __future__ import annotations

from dataclasses import replace

from hearthd.baker.checks.inspection import _maker_rows
from tests.bundle.example_manifests import EXAMPLE


def test_the_command_has_every_option_that_was_given() -> None:
    options = {"precision": "auto", "max_kl": 0.0, "adapters": None, "batch_first": False}
    origin = replace(EXAMPLE.provenance, options=options)
    command = next(_maker_rows(origin))[1]
    assert command.endswith(" --precision auto --max-kl 0.0")


def test_weights_of_no_package_are_named_by_a_placeholder() -> None:
    (source, *others) = EXAMPLE.provenance.sources
    sources = (replace(source, package=None, version=None), *others)
    origin = replace(EXAMPLE.provenance, sources=sources, options={})
    assert next(_maker_rows(origin))[1] == "hearth bake WEIGHTS"
