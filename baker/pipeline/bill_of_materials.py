"""bom.cdx.json: what a bundle was made from, as a CycloneDX 1.6 bill of materials for models.

It is made of the manifest and the license of the weights alone, so that the same bake writes the
same bytes: it has no date, and its serial number is a digest of its text.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, TypeVar

from hearthd.baker.calibration.calibration_text import calibration_text
from hearthd.bundle import (
    CALIBRATION,
    PARAMETERS,
    LanguageManifest,
    known_bundles,
    record_file,
    write_manifest,
)
from hearthd.models.precision import PRECISIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hearthd.baker.weights.source import WeightSource
    from hearthd.bundle import FileRecord, Manifest, SourceRecord

    M = TypeVar("M", bound=Manifest)

BILL = "bom.cdx.json"
_FORMAT = {"bomFormat": "CycloneDX", "specVersion": "1.6"}
# SPDX identifiers. Model cards write them in lower case, and other licenses by names of their own.
_SPDX = ("Apache-2.0", "BSD-3-Clause", "CC-BY-4.0", "CC-BY-NC-4.0", "CC-BY-SA-4.0", "MIT")
_LICENSE = re.compile(r"^license: *[\"']?([^\"'\n]+)", re.MULTILINE)
_MODEL_CARD = "README.md"
_MAX_CARD, _MAX_NAME = 1 << 16, 200  # characters that are read of a card, and kept of a name


def write_manifest_and_bill(folder: Path, manifest: M, license_name: str | None) -> M:
    """Write the bill of materials, then the manifest; returns the manifest, which lists the bill.

    `license_name` is the license that the weights name, or None.
    """
    files = tuple(record for record in manifest.files if record.name != BILL)
    bill = _bill(replace(manifest, files=files), license_name)
    (folder / BILL).write_text(_text(bill), encoding="utf-8", newline="\n")
    complete = replace(manifest, files=(*files, record_file(folder / BILL)))
    write_manifest(folder, complete)
    known_bundles.remember(complete)
    return complete


def read_license(bundle: Path) -> str | None:
    """The license in the bill of materials of a bundle."""
    bill = json.loads((bundle / BILL).read_text(encoding="utf-8"))
    licenses = bill["metadata"]["component"].get("licenses")
    return next(iter(licenses[0]["license"].values())) if licenses else None


def license_of(source: WeightSource) -> str | None:
    """The license that weights name: in the metadata of GGUF, config.json or the model card."""
    metadata = source.metadata()
    named = metadata.get("general.license" if source.format == "gguf" else "license")
    if named == "other":
        named = metadata.get("general.license.name", named)
    if not named and source.folder is not None:
        named = _license_in_card(source.folder / _MODEL_CARD)
    return named.strip()[:_MAX_NAME] or None if isinstance(named, str) else None


def _license_in_card(card: Path) -> str | None:
    """The license in the front matter of a model card, if there is one."""
    if not card.is_file():
        return None
    with card.open(encoding="utf-8", errors="replace") as file:
        parts = file.read(_MAX_CARD).split("---\n", 2)
    match = _LICENSE.search(parts[1]) if len(parts) > 2 and not parts[0] else None
    return match and match[1]


def _text(bill: dict[str, Any]) -> str:
    content = json.dumps(bill, indent=1, ensure_ascii=False)
    serial = uuid.uuid5(uuid.NAMESPACE_OID, sha256(content.encode()).hexdigest())
    numbered = {**_FORMAT, "serialNumber": serial.urn, "version": 1, **bill}
    return json.dumps(numbered, indent=1, ensure_ascii=False) + "\n"


def _bill(manifest: Manifest, license_name: str | None) -> dict[str, Any]:
    origin = manifest.provenance
    licenses = {"licenses": [{"license": _license(license_name)}]} if license_name else {}
    datasets = list(_datasets(manifest))
    hashes = [file for file in manifest.files if file.name == PARAMETERS]
    model = {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": origin.model,
        **(_hashes(hashes[0]) if hashes else {}),
        **licenses,
        "pedigree": {"ancestors": [_weights(source) for source in origin.sources]},
        "modelCard": {
            "modelParameters": {
                "modelArchitecture": manifest.architecture,
                "datasets": [{"ref": data["bom-ref"]} for data in datasets],
            }
        },
        "properties": [
            {"name": "hearth:precision", "value": manifest.precision},
            *(
                {"name": "hearth:target", "value": triple}
                for triple in dict.fromkeys(program.target.triple for program in manifest.programs)
            ),
        ],
    }
    hearth = {"type": "application", "name": "hearth", "version": origin.hearth.version}
    return {
        "metadata": {"tools": {"components": [hearth]}, "component": model},
        "components": [
            *({"type": "file", "name": file.name, **_hashes(file)} for file in manifest.files),
            *datasets,
        ],
        "formulation": [{"components": [hearth, *_tools(manifest)]}],
    }


def _tools(manifest: Manifest) -> Iterator[dict[str, Any]]:
    """The compiler, Python, and the packages that decide the bytes of a bundle."""
    origin = manifest.provenance
    compiler = _package(origin.compiler.name, origin.compiler.version)
    yield {"type": "application", **compiler}
    for name, version in origin.tools.items():
        if name == "python":
            yield {"type": "platform", "name": name, "version": version}
        else:
            yield {"type": "library", **_package(name, version)}


def _weights(source: SourceRecord) -> dict[str, Any]:
    """A file of the weights, which may be in a package."""
    package = {}
    if source.package and source.version:
        package = {"purl": _package(source.package, source.version)["purl"]}
    return {"type": "file", "name": source.name, **_hashes(source), **package}


def _datasets(manifest: Manifest) -> Iterator[dict[str, Any]]:
    """The text that layers were rounded for, if there is one: in the bundle, or Hearth's own."""
    precision = PRECISIONS.get(manifest.precision)
    if not isinstance(manifest, LanguageManifest) or precision is None or not precision.calibrated:
        return
    digests = {file.name: file.sha256 for file in manifest.files}
    shipped = sha256(calibration_text(None).encode()).hexdigest()
    digest = digests.get(CALIBRATION, shipped)
    yield {
        "type": "data",
        "bom-ref": "calibration",
        "name": CALIBRATION,
        "description": "Text that layers were rounded for"
        + ("" if CALIBRATION in digests else "; it is a part of Hearth"),
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "data": [{"type": "dataset", "name": CALIBRATION}],
    }


def _license(name: str) -> dict[str, str]:
    spdx = next((known for known in _SPDX if known.lower() == name.lower()), None)
    return {"id": spdx} if spdx else {"name": name}


def _hashes(record: FileRecord) -> dict[str, Any]:
    return {"hashes": [{"alg": "SHA-256", "content": record.sha256}]}


def _package(name: str, version: str) -> dict[str, str]:
    """A package of PyPI, which is named in lower case and with hyphens in a package URL."""
    normal = name.lower().replace("_", "-")
    return {"name": name, "version": version, "purl": f"pkg:pypi/{normal}@{version}"}
