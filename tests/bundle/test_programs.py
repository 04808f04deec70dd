"""Bundles with programs for several machines."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hearthd.bundle import FileRecord, NotABundle, ProgramFile, Target, parse_manifest
from tests.bundle.example_manifests import ARRAYS, EXAMPLE, EXAMPLES

OTHER = ProgramFile(
    file="model.x86_64-v4.vmfb",
    target=Target(name="x86_64-v4", triple="x86_64-linux-gnu", cpu="x86-64-v4", features=()),
    instructions="avx2",
)
FILES = (*EXAMPLE.files, FileRecord(name=OTHER.file, bytes=9, sha256="ef"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_programs_for_other_targets_are_kept(example: str) -> None:
    manifest = replace(EXAMPLES[example], other_programs=(OTHER,), files=FILES)
    assert parse_manifest(manifest.to_json()) == manifest
    assert [program.file for program in manifest.programs] == ["model.vmfb", OTHER.file]
    assert manifest.programs[0].target == EXAMPLE.target
    assert manifest.programs[0].instructions == "avx2"


def test_a_manifest_of_one_program_has_no_list_of_others() -> None:
    assert "other_programs" not in json.loads(EXAMPLE.to_json())


def test_a_program_that_is_not_a_file_of_the_bundle_is_rejected() -> None:
    """Digests and signatures cover the files of a bundle, so no other may run."""
    data = json.loads(replace(EXAMPLE, other_programs=(OTHER,), files=FILES).to_json())
    data["files"].pop()
    with pytest.raises(NotABundle, match=r"other_programs: got 'model.x86_64-v4.vmfb', expected"):
        parse_manifest(json.dumps(data))


def test_one_program_of_several_takes_memory() -> None:
    assert ARRAYS.own_memory == replace(ARRAYS, files=FILES[:1]).own_memory
    more = replace(ARRAYS, files=FILES, other_programs=(OTHER,))
    assert more.own_memory == ARRAYS.own_memory + 9 - 3
