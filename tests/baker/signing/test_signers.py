"""`hearth sign` and `hearth verify` against model-signing, the reference of the format."""

from __future__ import annotations

import datetime
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("model_signing", reason="signs: pip install 'hearthd[sign]'")

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from model_signing import hashing, signing, verifying

from hearthd import cli
from hearthd.baker.checks.reproduction import compare
from hearthd.baker.signing.signers import (
    Signer,
    SigningError,
    sign,
    verify_certificate,
    verify_identity,
)
from hearthd.bundle import (
    SIGNATURE,
    BadSignature,
    Corrupt,
    NotABundle,
    read_manifest,
    read_public_key,
    require_signed_files,
    require_signed_manifest,
)
from tests.bundle.example_manifests import small_bundle
from tests.bundle.signed_folders import SigningKey
from tests.server import adapter_folders

if TYPE_CHECKING:
    from collections.abc import Sequence

GOLDEN = Path(__file__).parents[2] / "golden/model_signing"


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return SigningKey(tmp_path / "key")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return small_bundle(tmp_path / "bundle")


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return adapter_folders.write(tmp_path / "adapter", adapter_folders.tensors(0))


def run(
    arguments: Sequence[object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str, str]:
    """Run `hearth`; returns its exit code and what it wrote to stdout and stderr."""
    monkeypatch.setattr(sys, "argv", ["hearth", *map(str, arguments)])
    with pytest.raises(SystemExit) as exit_:
        cli.main()
    return exit_.value.code, *capsys.readouterr()


def test_the_reference_accepts_what_hearth_signs(bundle: Path, key: SigningKey) -> None:
    sign(bundle, Signer(key=key.private))
    reference = verifying.Config().use_elliptic_key_verifier(public_key=key.public)
    reference.verify(bundle, bundle / SIGNATURE)
    (bundle / "model.vmfb").write_bytes(b"PROGRAM")
    with pytest.raises(ValueError, match="mismatch"):
        reference.verify(bundle, bundle / SIGNATURE)


def test_hearth_accepts_what_the_reference_signs(bundle: Path, key: SigningKey) -> None:
    reference = signing.Config().use_elliptic_key_signer(private_key=key.private)
    reference.sign(bundle, bundle / SIGNATURE)
    keys = [read_public_key(key.public)]
    require_signed_manifest(bundle, read_manifest(bundle), keys)
    require_signed_files(bundle, keys)
    (bundle / "model.vmfb").write_bytes(b"PROGRAM")
    with pytest.raises(BadSignature, match="was changed after the folder was signed"):
        require_signed_files(bundle, keys)


@pytest.mark.parametrize("algorithm", ["blake2", "blake3"])
def test_other_digests_of_the_reference_are_refused(
    algorithm: str, bundle: Path, key: SigningKey
) -> None:
    digests = hashing.Config().use_file_serialization(hashing_algorithm=algorithm)
    config = signing.Config().use_elliptic_key_signer(private_key=key.private)
    config.set_hashing_config(digests).sign(bundle, bundle / SIGNATURE)
    with pytest.raises(BadSignature, match=f'hash_type: got "{algorithm}'):
        require_signed_files(bundle, [read_public_key(key.public)])


def test_a_signature_is_replaced(bundle: Path, key: SigningKey, tmp_path: Path) -> None:
    sign(bundle, Signer(key=SigningKey(tmp_path / "old").private))
    sign(bundle, Signer(key=key.private))
    require_signed_files(bundle, [read_public_key(key.public)])
    assert {path.name for path in bundle.iterdir()} == {"manifest.json", "model.vmfb", SIGNATURE}


def test_a_signature_is_no_difference_of_bundles(
    bundle: Path, key: SigningKey, tmp_path: Path
) -> None:
    shutil.copytree(bundle, tmp_path / "again")
    sign(bundle, Signer(key=key.private))
    assert list(compare(bundle, tmp_path / "again")) == []


def test_an_adapter_is_signed(adapter: Path, key: SigningKey) -> None:
    sign(adapter, Signer(key=key.private))
    require_signed_files(adapter, [read_public_key(key.public)])


def test_a_bundle_that_is_not_intact_is_not_signed(bundle: Path, key: SigningKey) -> None:
    (bundle / "notes.txt").write_text("mine")
    with pytest.raises(SigningError, match=r"notes\.txt: not a file of the bundle; remove it"):
        sign(bundle, Signer(key=key.private))
    (bundle / "notes.txt").unlink()
    (bundle / "model.vmfb").write_bytes(b"PROGRAM")
    with pytest.raises(Corrupt):
        sign(bundle, Signer(key=key.private))
    assert not (bundle / SIGNATURE).exists()


def test_only_bundles_and_adapters_are_signed(key: SigningKey, tmp_path: Path) -> None:
    with pytest.raises(NotABundle, match="neither a bundle nor an adapter"):
        sign(tmp_path, Signer(key=key.private))


def test_a_key_that_cannot_sign_is_named_in_one_sentence(
    bundle: Path, key: SigningKey, tmp_path: Path
) -> None:
    locked, edwards, text = (tmp_path / name for name in ("locked", "edwards", "text"))
    text.write_text("x")
    private = load_pem_private_key(key.private.read_bytes(), None)
    form = (Encoding.PEM, PrivateFormat.PKCS8)
    locked.write_bytes(private.private_bytes(*form, BestAvailableEncryption(b"secret")))
    edwards.write_bytes(Ed25519PrivateKey.generate().private_bytes(*form, NoEncryption()))
    for signer, problem in (
        (Signer(key=key.public), f"{key.public} is not a private key in PEM: `openssl "),
        (Signer(key=text), f"{text} is not a private key in PEM: `openssl "),
        (Signer(key=tmp_path / "no"), f"{tmp_path / 'no'} cannot be read: No such file"),
        (Signer(key=tmp_path), f"{tmp_path} cannot be read: Is a directory"),
        (Signer(key=locked), f"{locked} has a password: "),
        (Signer(key=edwards), f"{edwards} has another kind of key, expected P-256, P-384 or"),
        (Signer(key=key.private, certificate=text), f"{text} is not a certificate in PEM"),
        (Signer(key=key.private, certificate=tmp_path / "no"), f"{tmp_path / 'no'} cannot be "),
    ):
        match = f"bundle: cannot be signed: {re.escape(problem)}"
        with pytest.raises(SigningError, match=match) as refused:
            sign(bundle, signer)
        assert "\n" not in str(refused.value)


def test_a_missing_package_is_named(
    bundle: Path,
    key: SigningKey,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "model_signing", None)
    code, _, stderr = run(["sign", bundle, "--key", key.private], monkeypatch, capsys)
    assert (code, stderr) == (
        1,
        "hearth sign: the package 'model_signing' is not installed: install it, as in pip install "
        "'hearthd[sign]'\n",
    )
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    code, _, stderr = run(["verify", bundle, "--key", key.public], monkeypatch, capsys)
    assert code == 1
    assert "is not installed, which checks signatures: install it, as in pip install 'hea" in stderr


def certificate(
    subject: str, key: SigningKey, issuer: x509.Certificate | None, signer: SigningKey
) -> x509.Certificate:
    """A certificate: of an authority without an issuer, of a signer with one."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=issuer is None,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = x509.CertificateBuilder(
        issuer_name=issuer.subject if issuer else name,
        subject_name=name,
        public_key=key.key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=now - datetime.timedelta(days=1),
        not_valid_after=now + datetime.timedelta(days=1),
    )
    builder = builder.add_extension(x509.BasicConstraints(issuer is None, None), critical=True)
    builder = builder.add_extension(usage, critical=True)
    code_signing = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])
    return builder.add_extension(code_signing, critical=False).sign(signer.key, hashes.SHA256())


def test_certificates_are_verified(
    bundle: Path,
    key: SigningKey,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    authority = SigningKey(tmp_path / "authority")
    root = certificate("root", authority, None, authority)
    leaf = certificate("signer", key, root, authority)
    for name, one in (("root", root), ("leaf", leaf)):
        (tmp_path / f"{name}.pem").write_bytes(one.public_bytes(Encoding.PEM))
    signed = ["sign", bundle, "--key", key.private, "--certificate", tmp_path / "leaf.pem"]
    assert run(signed, monkeypatch, capsys) == (0, f"{bundle / SIGNATURE}: written\n", "")
    verified = ["verify", bundle, "--certificate", tmp_path / "root.pem"]
    _, stdout, _ = run(verified, monkeypatch, capsys)  # the program itself is none
    assert "signature: model.sig is by a certificate of" in stdout.replace("\n", " ")
    other = ["verify", bundle, "--certificate", GOLDEN / "ca-cert.pem"]
    code, _, stderr = run(other, monkeypatch, capsys)
    assert code == 1
    assert "model.sig: wrong signature: " in stderr
    assert stderr.count("\n") == 1


def test_the_golden_signature_with_a_certificate_is_verified(tmp_path: Path) -> None:
    (tmp_path / "signme-2").write_text("signme-2")
    texts = {"signed/v1.1.0-certificate.json": "signme-1", "valid/certificate.json": "signme-1\n"}
    for name, text in texts.items():
        (tmp_path / "signme-1").write_text(text)
        shutil.copy(GOLDEN / name, tmp_path / SIGNATURE)
        verify_certificate(tmp_path, (GOLDEN / "ca-cert.pem",))
    (tmp_path / "signme-2").write_text("signme-3")
    with pytest.raises(BadSignature, match="signme-2"):
        verify_certificate(tmp_path, (GOLDEN / "ca-cert.pem",))


def test_a_missing_root_certificate_is_not_called_a_wrong_signature(
    adapter: Path, key: SigningKey, tmp_path: Path
) -> None:
    sign(adapter, Signer(key=key.private))
    with pytest.raises(SigningError, match=r"model\.sig: cannot be verified: .*missing\.pem"):
        verify_certificate(adapter, (tmp_path / "missing.pem",))


def _unreachable(*_: object, **__: object) -> None:
    raise OSError("timed out\nafter 60 s")


@pytest.mark.parametrize("signed", [False, True])
def test_an_unreachable_sigstore_keeps_the_signature(
    adapter: Path, key: SigningKey, monkeypatch: pytest.MonkeyPatch, *, signed: bool
) -> None:
    if signed:
        sign(adapter, Signer(key=key.private))
    before = {path: path.read_bytes() for path in adapter.iterdir()}
    monkeypatch.setattr(signing.Config, "use_sigstore_signer", _unreachable)
    with pytest.raises(SigningError) as caught:
        sign(adapter, Signer())
    assert str(caught.value) == f"{adapter}: cannot be signed: timed out after 60 s"
    assert {path: path.read_bytes() for path in adapter.iterdir()} == before


def test_an_unreachable_sigstore_is_not_called_a_wrong_signature(
    adapter: Path, key: SigningKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign(adapter, Signer(key=key.private))
    before = (adapter / SIGNATURE).read_bytes()
    monkeypatch.setattr(verifying.Config, "use_sigstore_verifier", _unreachable)
    with pytest.raises(SigningError) as caught:
        verify_identity(adapter, "a@example.org", "https://example.org")
    path = adapter / SIGNATURE
    assert str(caught.value) == f"{path}: cannot be verified: timed out after 60 s"
    assert path.read_bytes() == before


def test_verify_checks_the_signature_of_an_adapter(
    adapter: Path,
    key: SigningKey,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["verify", adapter, "--key", key.public]
    code, _, stderr = run(command, monkeypatch, capsys)
    assert (code, stderr.count("\n")) == (1, 1)
    assert "model.sig: missing file: the folder is not signed; sign it with hearth sign" in stderr
    sign(adapter, Signer(key=key.private))
    code, stdout, stderr = run(command, monkeypatch, capsys)
    assert (code, stderr) == (0, "")
    assert stdout.startswith("signature: model.sig is by ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["sign", "."], "give one of --key, --pkcs11 and --keyless"),
        (["sign", ".", "--key", "a", "--keyless"], "give one of --key, --pkcs11 and --keyless"),
        (["sign", ".", "--key", "a", "--chain", "b"], "--chain needs --certificate"),
        (["sign", ".", "--keyless", "--certificate", "b"], "which needs --key"),
        (["sign", ".", "--pkcs11", "a", "--certificate", "b"], "which needs --key"),
        (["verify", ".", "--key", "a", "--certificate", "b"], "give one of --key, --certificate"),
        (["verify", ".", "--identity", "a"], "--identity with --issuer"),
    ],
)
def test_options_that_contradict_one_another_are_refused(
    arguments: list[str],
    problem: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, _, stderr = run(arguments, monkeypatch, capsys)
    assert code == 2
    assert problem in stderr
