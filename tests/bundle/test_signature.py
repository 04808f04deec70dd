"""Signatures are accepted by the key that made them, for exactly the files that were signed."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hearthd.bundle import (
    MANIFEST,
    SIGNATURE,
    BadKey,
    BadSignature,
    read_manifest,
    read_public_key,
    record_file,
    require_signed_files,
    require_signed_manifest,
    signed_files,
    write_manifest,
)
from tests.bundle.example_manifests import small_bundle

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("cryptography", reason="checks signatures: pip install 'hearthd[verify]'")

from cryptography.hazmat.primitives.asymmetric import ec

from tests.bundle import signed_folders
from tests.bundle.signed_folders import SigningKey

GOLDEN = Path(__file__).parents[1] / "golden/model_signing"
OTHER_DIGEST = "ab" * 32


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return SigningKey(tmp_path / "key")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "weights").write_bytes(b"weights")
    (folder / "inner/config").write_bytes(b"config")
    return folder


def check(folder: Path, *keys: SigningKey) -> None:
    require_signed_files(folder, [read_public_key(key.public) for key in keys])


def golden(folder: Path, name: str) -> Path:
    """The folder of two files that the golden signatures are of, with one of them."""
    folder.mkdir()
    (folder / "signme-1").write_text("signme-1\n")
    (folder / "signme-2").write_text("signme-2")
    shutil.copy(GOLDEN / name, folder / SIGNATURE)
    return folder


@pytest.mark.parametrize(
    "name", ["valid/key.json", "signed/v1.0.1-elliptic-key.json", "signed/v1.1.0-elliptic-key.json"]
)
def test_signatures_of_others_are_accepted(name: str, tmp_path: Path) -> None:
    signed = golden(tmp_path / "folder", name)
    require_signed_files(signed, [read_public_key(GOLDEN / "signing-key-pub.pem")])
    (signed / "signme-2").write_text("signme-3")
    with pytest.raises(BadSignature, match="signme-2: was changed after the folder was signed"):
        require_signed_files(signed, [read_public_key(GOLDEN / "signing-key-pub.pem")])


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("invalid/empty.json", "not a signature: not JSON: Expecting value"),
        ("invalid/missing-envelope.json", "not a signature: dsseEnvelope: missing field"),
        ("invalid/missing-verification-material.json", "verificationMaterial: missing field"),
        ("invalid/missing-tlog-entries.json", "signed with a certificate, expected the key e8450d"),
        ("invalid/wrong-predicate.json", "wrong signature|predicateType: got"),
        ("valid/sigstore.json", "signed with a certificate, expected the key"),
        ("valid/certificate.json", "signed with a certificate, expected the key"),
        # Of a single file, whose name is ".": no folder that is served.
        ("signed/v1.0.0-elliptic-key.json", "signme-1: was added after the folder was signed"),
        ("signed/v0.3.1-elliptic-key.json", "signme-1: was added after the folder was signed"),
    ],
)
def test_other_signatures_are_refused(name: str, problem: str, tmp_path: Path) -> None:
    signed = golden(tmp_path / "folder", name)
    with pytest.raises(BadSignature, match=problem):
        require_signed_files(signed, [read_public_key(GOLDEN / "signing-key-pub.pem")])


def test_every_golden_signature_is_used() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    text += (Path(__file__).parents[1] / "baker/signing/test_signers.py").read_text("utf-8")
    names = {path.relative_to(GOLDEN).as_posix() for path in GOLDEN.glob("*/*.json")}
    assert names
    assert {name for name in names if name not in text} == set()


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()])
def test_each_curve_signs(curve: ec.EllipticCurve, folder: Path, tmp_path: Path) -> None:
    key = SigningKey(tmp_path / "other", curve)
    key.sign(folder)
    check(folder, key)


def test_one_of_several_keys_is_enough(key: SigningKey, folder: Path, tmp_path: Path) -> None:
    key.sign(folder)
    check(folder, SigningKey(tmp_path / "new"), key)


def test_another_key_is_refused(key: SigningKey, folder: Path, tmp_path: Path) -> None:
    key.sign(folder)
    other = SigningKey(tmp_path / "other")
    with pytest.raises(BadSignature, match=r"signed with another key: got \w+, expected \w+"):
        check(folder, other)
    # A signature that claims to be of the expected key.
    (folder / SIGNATURE).write_text(
        (folder / SIGNATURE)
        .read_text()
        .replace(read_public_key(key.public).hint, read_public_key(other.public).hint)
    )
    with pytest.raises(BadSignature, match="wrong signature"):
        check(folder, other)


def add(folder: Path) -> None:
    (folder / "inner/added").write_bytes(b"")


def add_link(folder: Path) -> None:
    (folder / "weights").rename(folder.parent / "elsewhere")
    (folder / "weights").symlink_to(folder.parent / "elsewhere")


def add_folder_link(folder: Path) -> None:
    (folder / "inner").rename(folder.parent / "elsewhere")
    (folder / "inner").symlink_to(folder.parent / "elsewhere")


def link_signature(folder: Path) -> None:
    (folder / SIGNATURE).rename(folder.parent / "elsewhere")
    (folder / SIGNATURE).symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda f: (f / "weights").write_bytes(b"Weights"), "weights: was changed after"),
        (lambda f: (f / "inner/config").unlink(), "inner/config: missing file: it was signed"),
        (lambda f: (f / "weights").rename(f / "other"), "other: was added after the folder"),
        (add, "inner/added: was added after the folder was signed"),
        (add_link, "weights: is not a file; a signed folder has only files"),
        (add_folder_link, "inner: is not a file; a signed folder has only files"),
        (link_signature, "model.sig: missing file: the folder is not signed"),
        (lambda f: (f / SIGNATURE).unlink(), "model.sig: missing file: the folder is not signed"),
        (lambda f: (f / SIGNATURE).write_bytes(b""), "model.sig: not a signature"),
        (lambda f: (f / SIGNATURE).write_bytes(b"\xff"), "model.sig: not a signature"),
        (lambda f: (f / SIGNATURE).write_text("[" * 10**5), "model.sig: not a signature"),
        (lambda f: (f / SIGNATURE).write_bytes(b" " * (17 << 20)), "got .* expected at most"),
    ],
)
def test_a_changed_folder_is_refused(
    change: Callable[[Path], object], problem: str, key: SigningKey, folder: Path
) -> None:
    key.sign(folder)
    check(folder, key)
    change(folder)
    with pytest.raises(BadSignature, match=problem) as refused:
        check(folder, key)
    assert "\n" not in str(refused.value)


def test_paths_that_the_signer_ignored_may_change(key: SigningKey, folder: Path) -> None:
    key.sign(folder, serialization={"ignore_paths": ["notes", "cache"]})
    (folder / "notes").write_text("later")
    (folder / "cache/deep").mkdir(parents=True)
    (folder / "cache/deep/file").write_text("later")
    (folder / ".gitattributes").write_text("* -text")
    check(folder, key)
    (folder / "inner/notes").write_text("later")
    with pytest.raises(BadSignature, match="inner/notes: was added"):
        check(folder, key)


def resource(**changes: str) -> dict[str, str]:
    return {"name": "weights", "algorithm": "sha256", "digest": OTHER_DIGEST} | changes


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"serialization": {"hash_type": "blake2b"}},
            'hash_type: got "blake2b", expected \'sha256',
        ),
        ({"serialization": {"method": "shards"}}, "method: got \"shards\", expected 'files'"),
        (
            {"resources": [resource(algorithm="blake3")]},
            "algorithm: got \"blake3\", expected 'sha256'",
        ),
        ({"resources": [resource(digest="ab" * 64)]}, "got 'abab.*expected a sha256"),
        ({"resources": [resource(), resource()]}, "'weights' is there twice"),
        ({"resources": []}, "was added after the folder was signed"),
        ({"resources": [resource(name="../folder/weights")]}, "was added after the folder"),
        ({"_type": "https://in-toto.io/Statement/v0.1"}, "_type: got"),
        ({"predicateType": "https://model_signing/Digests/v0.1"}, "predicateType: got"),
        ({"predicate": {}}, "serialization: missing field"),
        ({"subject": []}, r"subject\[0\]: missing field"),
        ({"subject": [{"digest": {"sha256": OTHER_DIGEST}}]}, "the digest of the subject does not"),
        ({"serialization": {"ignore_paths": "weights"}}, 'ignore_paths: got "weights", expected'),
    ],
)
def test_a_signed_statement_that_says_something_else_is_refused(
    changes: dict[str, Any], problem: str, key: SigningKey, folder: Path
) -> None:
    key.sign(folder, **changes)
    with pytest.raises(BadSignature, match=problem):
        check(folder, key)


@pytest.mark.parametrize(
    ("envelope", "problem"),
    [
        ({"payloadType": "text/plain"}, 'payloadType: got "text/plain", expected'),
        ({"signatures": []}, r"not a signature: dsseEnvelope\.signatures\[0\]: missing field"),
        ({"signatures": [{"sig": ""}]}, "wrong signature"),
        ({"signatures": [{"sig": "AA==", "keyid": None}]}, "wrong signature"),
        ({"signatures": [{"sig": "AA=="}, {"sig": "AA=="}]}, "signatures: got .* at most 1 item"),
        ({"signatures": [{"sig": "not base64"}]}, "not a signature"),
        ({"payload": "e30="}, "wrong signature"),
        ({"prefix": b"DSSEV1"}, "wrong signature"),
    ],
)
def test_another_envelope_is_refused(
    envelope: dict[str, Any], problem: str, key: SigningKey, folder: Path
) -> None:
    payload = json.dumps(signed_folders.statement(folder)).encode()
    key.sign_payload(folder, payload)
    check(folder, key)
    key.sign_payload(folder, payload, **envelope)
    with pytest.raises(BadSignature, match=problem):
        check(folder, key)


def test_a_payload_that_is_ambiguous_is_refused(key: SigningKey, folder: Path) -> None:
    text = json.dumps(signed_folders.statement(folder))
    key.sign_payload(folder, text.replace('"predicate":', '"predicate": {}, "predicate":').encode())
    with pytest.raises(BadSignature, match="the key 'predicate' is twice"):
        check(folder, key)


def test_other_media_types_are_refused(key: SigningKey, folder: Path) -> None:
    key.sign(folder)
    text = (folder / SIGNATURE).read_text()
    (folder / SIGNATURE).write_text(text.replace("bundle.v0.3+json", "bundle.v0.1+json"))
    with pytest.raises(BadSignature, match=r"mediaType: got .*v0\.1"):
        check(folder, key)


def test_older_signatures_have_no_hint(key: SigningKey, folder: Path, tmp_path: Path) -> None:
    key.sign(folder)
    data = json.loads((folder / SIGNATURE).read_text())
    data["verificationMaterial"] = {"publicKey": {"rawBytes": ""}}
    (folder / SIGNATURE).write_text(json.dumps(data))
    check(folder, key)
    with pytest.raises(BadSignature, match="wrong signature"):
        check(folder, SigningKey(tmp_path / "other"))


def test_without_keys_only_the_names_are_checked(key: SigningKey, folder: Path) -> None:
    key.sign(folder)
    assert set(signed_files(folder, None).sha256) == {"weights", "inner/config"}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return small_bundle(tmp_path / "bundle")


def check_bundle(bundle: Path, key: SigningKey) -> None:
    require_signed_manifest(bundle, read_manifest(bundle), [read_public_key(key.public)])


def test_the_signature_of_a_bundle_covers_the_manifest_in_memory(
    bundle: Path, key: SigningKey
) -> None:
    key.sign(bundle)
    check_bundle(bundle, key)
    other = dataclasses.replace(read_manifest(bundle), tolerance=1.0)
    with pytest.raises(BadSignature, match=f"{MANIFEST}: was changed after"):
        require_signed_manifest(bundle, other, [read_public_key(key.public)])
    # Another program with a manifest that fits it.
    (bundle / "model.vmfb").write_bytes(b"PROGRAM")
    write_manifest(bundle, dataclasses.replace(other, files=(record_file(bundle / "model.vmfb"),)))
    with pytest.raises(BadSignature, match="was changed after the folder was signed"):
        check_bundle(bundle, key)


@pytest.mark.parametrize("name", [MANIFEST, "model.vmfb"])
def test_a_file_of_the_bundle_that_the_signer_ignored_is_refused(
    name: str, bundle: Path, key: SigningKey
) -> None:
    signed = signed_folders.statement(bundle)["predicate"]["resources"]
    others = [one for one in signed if one["name"] != name]
    key.sign(bundle, resources=others, serialization={"ignore_paths": [name]})
    with pytest.raises(BadSignature, match=f"{name}: is not signed: model.sig does not name it"):
        check_bundle(bundle, key)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "cannot be read: No such file"),
        ("", "got no public key in PEM format, expected a public key"),
        ("private", "got a private key, expected a public key; openssl pkey"),
        (GOLDEN / "ca-cert.pem", "got no public key in PEM format"),
        (ec.SECP256K1(), "got another kind of key, expected one of P-256, P-384 or P-521"),
    ],
)
def test_a_file_without_a_usable_public_key_is_refused(
    text: object, problem: str, key: SigningKey, tmp_path: Path
) -> None:
    path = tmp_path / "public.pem"
    if text == "private":
        shutil.copy(key.private, path)
    elif isinstance(text, Path):
        shutil.copy(text, path)
    elif isinstance(text, ec.EllipticCurve):
        shutil.copy(SigningKey(tmp_path / "unusual", text).public, path)
    elif isinstance(text, str):
        path.write_text(text)
    with pytest.raises(BadKey, match=problem):
        read_public_key(path)
