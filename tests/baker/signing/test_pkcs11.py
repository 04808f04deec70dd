"""`hearth sign --pkcs11` with keys in SoftHSM, a PKCS #11 token in software."""

from __future__ import annotations

import gc
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.by_day import first_by_day
from tests.patience import PATIENCE

pytest.importorskip("PyKCS11", reason="signs with a token: pip install 'model-signing[pkcs11]'")

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from hearthd.baker.signing.signers import Signer, SigningError, sign
from hearthd.bundle import SIGNATURE, BadSignature, read_public_key, require_signed_files
from tests.bundle.signed_folders import SigningKey
from tests.server import adapter_folders

if TYPE_CHECKING:
    from collections.abc import Iterator

MODULE = Path("/usr/lib/softhsm/libsofthsm2.so")
PIN = "1234"
CURVES = {"p256": ec.SECP256R1(), "p384": ec.SECP384R1(), "p521": ec.SECP521R1()}

pytestmark = pytest.mark.skipif(
    not (MODULE.exists() and shutil.which("softhsm2-util")),
    reason="no token: apt-get install softhsm2",
)


class Token(NamedTuple):
    """A token, and the public keys of it by their labels."""

    keys: dict[str, SigningKey]

    def uri(self, label: str, token: str = "hearth", **query: str) -> str:
        query = {"module-path": str(MODULE), "pin-value": PIN, **query}
        return f"pkcs11:token={token};object={label}?" + "&".join(
            f"{name}={value}" for name, value in query.items() if value
        )


def softhsm(*arguments: str) -> None:
    subprocess.run(
        ["softhsm2-util", *arguments], check=True, capture_output=True, timeout=PATIENCE, text=True
    )


@pytest.fixture(scope="module")
def token(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Token]:
    folder = tmp_path_factory.mktemp("softhsm")
    (folder / "tokens").mkdir()
    (folder / "softhsm2.conf").write_text(f"directories.tokendir = {folder / 'tokens'}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOFTHSM2_CONF", str(folder / "softhsm2.conf"))
        softhsm(*"--init-token --free --label hearth --so-pin 5678 --pin".split(), PIN)
        keys = {label: SigningKey(folder / label, curve) for label, curve in CURVES.items()}
        files = {label: key.private for label, key in keys.items()}
        files["rsa"] = folder / "rsa.pem"
        files["rsa"].write_bytes(
            rsa.generate_private_key(65537, 2048).private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
            )
        )
        for number, (label, path) in enumerate(files.items(), 1):
            name = ["--label", label, "--id", f"{number:02}"]
            softhsm("--import", str(path), *name, "--token", "hearth", "--pin", PIN)
        yield Token(keys)


@pytest.fixture(autouse=True)
def logged_out() -> Iterator[None]:
    """Close the sessions of signers that failed: a process logs in once."""
    yield
    gc.collect()


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return adapter_folders.write(tmp_path / "adapter", adapter_folders.tensors(0))


@pytest.mark.parametrize("label", first_by_day(CURVES))
def test_a_key_in_a_token_signs(label: str, token: Token, adapter: Path) -> None:
    sign(adapter, Signer(pkcs11=token.uri(label)))
    require_signed_files(adapter, [read_public_key(token.keys[label].public)])
    (adapter / "adapter_config.json").write_text("{}")
    with pytest.raises(BadSignature, match=r"adapter_config\.json: was changed after the folder"):
        require_signed_files(adapter, [read_public_key(token.keys[label].public)])


def test_the_pin_is_read_from_a_file(token: Token, adapter: Path, tmp_path: Path) -> None:
    pin = {"pin-value": "", "pin-source": f"file:{tmp_path / 'pin'}"}
    (tmp_path / "pin").write_text(PIN)
    sign(adapter, Signer(pkcs11=token.uri("p256", **pin)))
    require_signed_files(adapter, [read_public_key(token.keys["p256"].public)])
    (tmp_path / "pin").write_text(f"{PIN}\n")
    with pytest.raises(SigningError, match="must not end with a newline"):
        sign(adapter, Signer(pkcs11=token.uri("p256", **pin)))


@pytest.mark.parametrize(
    ("label", "change", "problem"),
    first_by_day(
        [
            ("p256", {"pin-value": "4321"}, "wrong PIN: correct pin-value"),
            ("p256", {"pin-value": ""}, "no such key in the token: .* the PIN in pin-source"),
            ("p256", {"token": "other"}, "Could not find a token with label other in any slots"),
            ("p256", {"module-path": ""}, "no PKCS #11 module: add .module-path="),
            ("p256", {"module-path": "/missing.so"}, "No such file or directory: '/missing.so'"),
            ("missing", {}, "no such key in the token"),
            ("rsa", {}, "wrong kind of key in the token: expected P-256, P-384 or P-521"),
        ]
    ),
)
def test_a_token_that_cannot_sign_is_refused_in_one_sentence(
    label: str, change: dict[str, str], problem: str, token: Token, adapter: Path
) -> None:
    with pytest.raises(SigningError, match=f"adapter: cannot be signed: .*{problem}") as refused:
        sign(adapter, Signer(pkcs11=token.uri(label, **change)))
    assert "\n" not in str(refused.value)
    assert PIN not in str(refused.value)
    assert not (adapter / SIGNATURE).exists()


def test_the_package_for_tokens_is_named(
    token: Token, adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "model_signing._signing.sign_pkcs11", raising=False)
    monkeypatch.delattr("model_signing._signing.sign_pkcs11", raising=False)
    monkeypatch.setitem(sys.modules, "PyKCS11", None)
    with pytest.raises(SigningError, match=r"pip install model-signing\[pkcs11\]"):
        sign(adapter, Signer(pkcs11=token.uri("p256")))


def test_the_command_signs_with_a_token(token: Token, adapter: Path) -> None:
    command = [sys.executable, "-m", "hearthd", "sign", str(adapter), "--pkcs11"]
    command.append(token.uri("p384"))
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    require_signed_files(adapter, [read_public_key(token.keys["p384"].public)])
