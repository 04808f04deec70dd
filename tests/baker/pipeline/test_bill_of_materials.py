"""bom.cdx.json against the official schema of CycloneDX, and what it says of a bundle."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from hearthd.baker.calibration import calibration_text
from hearthd.baker.pipeline.bill_of_materials import (
    BILL,
    license_of,
    read_license,
    write_manifest_and_bill,
)
from hearthd.bundle import CALIBRATION, FileRecord, SourceRecord, read_manifest, record_file
from tests.bundle.example_manifests import EXAMPLE, EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hearthd.bundle import Manifest

SOURCE = SourceRecord(
    name="model.gguf", bytes=1, sha256="ab" * 32, package="Some_Weights", version="1.2"
)


def bill_of(folder: Path, manifest: Manifest, license_name: str | None = None) -> dict[str, Any]:
    write_manifest_and_bill(folder, manifest, license_name)
    bill: dict[str, Any] = json.loads((folder / BILL).read_text(encoding="utf-8"))
    return bill


def record(name: str, digest: str = "cd" * 32) -> FileRecord:
    return FileRecord(name=name, bytes=1, sha256=digest)


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("license_name", [None, "apache-2.0", "gemma"])
def test_the_official_schema_accepts_it(
    example: str, license_name: str | None, tmp_path: Path
) -> None:
    json_ = pytest.importorskip("cyclonedx.validation.json", reason="installed by the extra dev")
    from cyclonedx.schema import SchemaVersion

    provenance = replace(EXAMPLE.provenance, sources=(SOURCE,))
    manifest = replace(EXAMPLES[example], provenance=provenance, files=(record("params.irpa"),))
    bill = bill_of(tmp_path, replace(manifest, precision="int4-g32"), license_name)
    validator = json_.JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(bill)) is None
    del bill["metadata"]["component"]["name"]
    assert validator.validate_str(json.dumps(bill)) is not None


def test_the_bill_names_the_model_its_weights_files_and_tools(tmp_path: Path) -> None:
    provenance = replace(
        EXAMPLE.provenance, sources=(SOURCE,), tools={"python": "3.12.1", "ml_dtypes": "0.5.1"}
    )
    files = (record("params.irpa", "ef" * 32), record("model.vmfb"))
    bill = bill_of(tmp_path, replace(EXAMPLE, provenance=provenance, files=files), "apache-2.0")
    model = bill["metadata"]["component"]
    assert model["type"] == "machine-learning-model"
    assert model["name"] == EXAMPLE.provenance.model
    assert model["hashes"] == [{"alg": "SHA-256", "content": "ef" * 32}]
    assert model["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert model["modelCard"]["modelParameters"]["modelArchitecture"] == EXAMPLE.architecture
    assert model["pedigree"]["ancestors"] == [
        {
            "type": "file",
            "name": "model.gguf",
            "hashes": [{"alg": "SHA-256", "content": "ab" * 32}],
            "purl": "pkg:pypi/some-weights@1.2",
        }
    ]
    assert [component["name"] for component in bill["components"]] == ["params.irpa", "model.vmfb"]
    made_with = {component["name"]: component for component in bill["formulation"][0]["components"]}
    compiler = EXAMPLE.provenance.compiler
    assert made_with[compiler.name]["version"] == compiler.version
    assert made_with["ml_dtypes"]["purl"] == "pkg:pypi/ml-dtypes@0.5.1"
    assert made_with["python"]["version"] == "3.12.1"
    assert made_with["hearth"]["version"] == EXAMPLE.provenance.hearth.version


def test_the_same_manifest_gives_the_same_bytes(tmp_path: Path) -> None:
    texts = []
    for manifest in (EXAMPLE, EXAMPLE, replace(EXAMPLE, precision="f32")):
        bill_of(tmp_path, manifest)
        texts.append((tmp_path / BILL).read_bytes())
    assert texts[0] == texts[1]
    serials = [json.loads(text)["serialNumber"] for text in texts]
    assert serials[0].startswith("urn:uuid:")
    assert serials[0] != serials[2]
    assert b"timestamp" not in texts[0]


def test_the_manifest_lists_the_bill_once(tmp_path: Path) -> None:
    once = write_manifest_and_bill(tmp_path, EXAMPLE, "gemma")
    assert once.files == (*EXAMPLE.files, record_file(tmp_path / BILL))
    assert read_manifest(tmp_path) == once
    assert write_manifest_and_bill(tmp_path, once, read_license(tmp_path)) == once


@pytest.mark.parametrize("license_name", ["gemma", "MIT", None])
def test_the_license_is_read_again(license_name: str | None, tmp_path: Path) -> None:
    bill_of(tmp_path, EXAMPLE, license_name)
    assert read_license(tmp_path) == license_name


def test_the_calibration_text_is_a_dataset(tmp_path: Path) -> None:
    rounded = replace(EXAMPLE, precision="int4-g32")
    bill = bill_of(tmp_path, rounded)
    (data,) = [component for component in bill["components"] if component["type"] == "data"]
    shipped = Path(calibration_text.__file__).with_name("calibration.txt").read_bytes()
    assert data["hashes"][0]["content"] == sha256(shipped).hexdigest()
    assert "it is a part of Hearth" in data["description"]
    parameters = bill["metadata"]["component"]["modelCard"]["modelParameters"]
    assert parameters["datasets"] == [{"ref": data["bom-ref"]}]
    bill = bill_of(tmp_path, replace(rounded, files=(record(CALIBRATION, "12" * 32),)))
    (data,) = [component for component in bill["components"] if component["type"] == "data"]
    assert data["hashes"][0]["content"] == "12" * 32
    assert "part of Hearth" not in data["description"]
    assert "data" not in {
        component["type"] for component in bill_of(tmp_path, EXAMPLE)["components"]
    }


class Weights:
    """Weights with this metadata, in a folder or in a GGUF file."""

    def __init__(self, metadata: Mapping[str, object], folder: Path | None) -> None:
        self.format: Literal["gguf", "safetensors"] = "safetensors" if folder else "gguf"
        self.folder = folder
        self._metadata = metadata

    def metadata(self) -> Mapping[str, object]:
        return self._metadata


@pytest.mark.parametrize(
    ("metadata", "license_name"),
    [
        ({"general.license": "gemma"}, "gemma"),
        ({"general.license": "other", "general.license.name": "lfm1.0"}, "lfm1.0"),
        ({"general.license": "other"}, "other"),
        ({"general.license": 3}, None),
        ({"general.license": " "}, None),
        ({"general.license": "x" * 300}, "x" * 200),
        ({}, None),
    ],
)
def test_the_license_in_a_gguf_file(metadata: dict[str, object], license_name: str | None) -> None:
    weights: Any = Weights(metadata, None)
    assert license_of(weights) == license_name


@pytest.mark.parametrize(
    ("card", "license_name"),
    [
        ("---\nlanguage: en\nlicense: apache-2.0\ntags:\n- x\n---\n# Model\n", "apache-2.0"),
        ('---\nlicense: "mit"\n---\n', "mit"),
        ("---\nlanguage: en\n---\nlicense: mit\n", None),
        ("# Model\n---\nlicense: mit\n---\n", None),
        ("", None),
        (None, None),
    ],
)
def test_the_license_in_a_folder(
    card: str | None, license_name: str | None, tmp_path: Path
) -> None:
    if card is not None:
        (tmp_path / "README.md").write_text(card)
    weights: Any = Weights({}, tmp_path)
    assert license_of(weights) == license_name
    named: Any = Weights({"license": "cc-by-4.0"}, tmp_path)
    assert license_of(named) == "cc-by-4.0"
