"""scripts/image_sbom on an unpacked image: no engine is needed."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "scripts/image_sbom"
SYFT = shutil.which("syft", path=f"{SCRIPT.parent.parent}/.venv/bin")

pytestmark = pytest.mark.skipif(SYFT is None, reason="installed by the extra dev: scripts/setup")

FILES = {
    "etc/os-release": 'ID=debian\nVERSION_ID="13"\n',
    "var/lib/dpkg/status": "Package: python3\nStatus: install ok installed\nArchitecture: arm64\n"
    "Maintainer: Debian <debian@example.com>\nVersion: 3.13.5-1\nDescription: Python\n",
    "opt/hearth/lib/python3.13/site-packages/hearth-0.1.0.dist-info/METADATA": "Metadata-Version: "
    "2.4\nName: hearth\nVersion: 0.1.0\nLicense-Expression: Apache-2.0\n",
}


@pytest.mark.nightly
def test_the_packages_of_an_image_are_listed(tmp_path: Path) -> None:
    for name, text in FILES.items():
        path = tmp_path / "image" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    written = tmp_path / "image.cdx.json"
    command = [str(SCRIPT), f"dir:{tmp_path / 'image'}", str(written)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    bill = json.loads(written.read_text(encoding="utf-8"))
    assert bill["specVersion"] == "1.6"
    packages = {component["name"]: component for component in bill["components"]}
    assert packages["hearth"]["purl"] == "pkg:pypi/hearth@0.1.0"
    python = "pkg:deb/debian/python3@3.13.5-1?arch=arm64&distro=debian-13"
    assert packages["python3"]["purl"] == python


def test_a_missing_image_is_refused(tmp_path: Path) -> None:
    command = [str(SCRIPT), f"dir:{tmp_path / 'missing'}", str(tmp_path / "image.cdx.json")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 1
    assert "missing" in result.stderr
