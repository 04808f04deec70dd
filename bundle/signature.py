"""Signatures of folders: bundles and adapters that were signed with a private key.

The format is OpenSSF Model Signing 1.0. The file model.sig is a Sigstore bundle of a DSSE
envelope, whose payload is an in-toto statement: the sha256 of every file of the folder. The format
also has certificates, other digests, parts of files, and links. These are refused here;
`hearth verify` checks certificates with the package model-signing.

Checking a signature needs the package `cryptography`, which is imported when it is used.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, NotRequired

from typing_extensions import TypedDict

from hearthd.bundle.bundle_errors import BundleError
from hearthd.bundle.file_records import MANIFEST, record_file
from hearthd.bundle.parsing import strict_json
from hearthd.bundle.parsing.typed_json import typed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    from hearthd.bundle.manifests.manifest import Manifest

__all__ = [
    "SIGNATURE",
    "BadKey",
    "BadSignature",
    "PublicKey",
    "SignedFiles",
    "read_public_key",
    "require_signed_files",
    "require_signed_manifest",
    "signed_files",
]

SIGNATURE = "model.sig"

_MAX_BYTES = 16 << 20  # of a signature: about 100 bytes per file
_PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
# Names that the specification never signs, at the top of a folder.
_NEVER_SIGNED = (SIGNATURE, ".git", ".gitattributes", ".github", ".gitignore")
_HASHES = {"secp256r1": "SHA256", "secp384r1": "SHA384", "secp521r1": "SHA512"}


class _Signature(TypedDict):
    sig: str


class _Envelope(TypedDict):
    payload: str
    payloadType: Literal["application/vnd.in-toto+json"]
    signatures: tuple[_Signature]


class _SignatureFile(TypedDict):
    mediaType: Literal["application/vnd.dev.sigstore.bundle.v0.3+json"]
    verificationMaterial: dict[str, Any]
    dsseEnvelope: _Envelope


class _Resource(TypedDict):
    name: str
    algorithm: Literal["sha256"]
    digest: str


class _Serialization(TypedDict):
    method: Literal["files"]
    hash_type: Literal["sha256"]
    ignore_paths: NotRequired[tuple[str, ...]]


class _Predicate(TypedDict):
    serialization: _Serialization
    resources: list[_Resource]


class _Digest(TypedDict):
    sha256: str


class _Subject(TypedDict):
    digest: _Digest


class _Statement(TypedDict):
    _type: Literal["https://in-toto.io/Statement/v1"]
    predicateType: Literal["https://model_signing/signature/v1.0"]
    predicate: _Predicate
    subject: tuple[_Subject]


class BadKey(BundleError):
    """A file is not a public key that signatures can be checked with."""


class BadSignature(BundleError):
    """A folder is not signed with one of the given keys, or differs from what was signed."""


@dataclass(frozen=True)
class PublicKey:
    """A public key as PEM text, and the hint by which signatures name it."""

    pem: str
    hint: str


@dataclass(frozen=True)
class SignedFiles:
    """The files of a folder that a signature covers, and those that it leaves out.

    sha256   the digests of the files by their paths in the folder
    ignored  paths of files and folders that are not signed
    """

    sha256: dict[str, str]
    ignored: tuple[str, ...]


def read_public_key(path: Path) -> PublicKey:
    """Read a public key from a PEM file; raises BadKey."""
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        data = path.read_bytes()
    except ModuleNotFoundError as error:
        raise BadKey(
            f"the package {error.name!r} is not installed, which checks signatures: install it, as "
            "in pip install 'hearthd[verify]'"
        ) from error
    except OSError as error:
        raise BadKey(f"{path}: cannot be read: {error.strerror}") from error
    key = _load(data, path)
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return PublicKey(pem.decode(), hashlib.sha256(pem).hexdigest())


def require_signed_manifest(
    bundle: Path, manifest: Manifest, keys: Sequence[PublicKey] | None
) -> None:
    """Check the signature of a bundle, and that it covers the manifest and all of its files.

    Reads no file: `manifest` has the digests. `keys` as in signed_files. Raises BadSignature.
    """
    signed = signed_files(bundle, keys)
    digests = {record.name: record.sha256 for record in manifest.files}
    digests[MANIFEST] = hashlib.sha256(manifest.to_json().encode()).hexdigest()
    _compare(bundle, signed, digests)


def require_signed_files(folder: Path, keys: Sequence[PublicKey] | None) -> SignedFiles:
    """Check the signature of a folder and the digest of every file; `keys` as in signed_files.

    Raises BadSignature.
    """
    signed = signed_files(folder, keys)
    try:
        _compare(
            folder, signed, {name: record_file(folder / name).sha256 for name in signed.sha256}
        )
    except OSError as error:
        raise BadSignature(f"{error.filename}: cannot be read: {error.strerror}") from error
    return signed


def signed_files(folder: Path, keys: Sequence[PublicKey] | None) -> SignedFiles:
    """The digests that one of the keys has signed, one for each file that is in the folder.

    The contents of the files are not read. With `keys` None, the caller has checked the signature.
    Raises BadSignature.
    """
    path = folder / SIGNATURE
    material, envelope = _read(path)
    try:
        payload = base64.b64decode(envelope["payload"], validate=True)
        value = base64.b64decode(envelope["signatures"][0]["sig"], validate=True)
    except ValueError as error:
        _refuse(path, f"not a signature: {error}")
    if keys is not None:
        _require_key(path, material, keys)
        if not any(_fits(key, value, payload) for key in keys):
            _refuse(path, "wrong signature: it does not fit the key and the list of files")
    signed = _parse_statement(path, payload)
    _compare_names(folder, signed)
    return signed


def _load(data: bytes, path: Path) -> EllipticCurvePublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm) as error:
        private = b"PRIVATE KEY" in data
        actual = "a private key" if private else "no public key in PEM format"
        raise BadKey(
            f"{path}: got {actual}, expected a public key; openssl pkey -in KEY -pubout writes it"
        ) from error
    if not isinstance(key, EllipticCurvePublicKey) or key.curve.name not in _HASHES:
        raise BadKey(f"{path}: got another kind of key, expected one of P-256, P-384 or P-521")
    return key


def _fits(key: PublicKey, signature: bytes, payload: bytes) -> bool:
    """Whether a signature is by a key; the signed text is the envelope's, as DSSE defines it."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric.ec import ECDSA

    loaded = _load(key.pem.encode(), Path(key.hint))
    text = b"DSSEv1 %d %s %d %s" % (
        len(_PAYLOAD_TYPE),
        _PAYLOAD_TYPE.encode(),
        len(payload),
        payload,
    )
    algorithm = getattr(hashes, _HASHES[loaded.curve.name])()
    try:
        loaded.verify(signature, text, ECDSA(algorithm))
    except InvalidSignature:
        return False
    return True


def _require_key(path: Path, material: dict[str, Any], keys: Sequence[PublicKey]) -> None:
    """Refuse a signature that names another signer than one of the keys."""
    expected = " or ".join(key.hint for key in keys)
    public_key = material.get("publicKey")
    if not isinstance(public_key, dict):
        certified = material.keys() & {"certificate", "x509CertificateChain"}
        signer = "a certificate" if certified else "no key"
        _refuse(path, f"signed with {signer}, expected the key {expected}")
    hint = public_key.get("hint")  # older signatures have none
    if hint and hint not in {key.hint for key in keys}:
        _refuse(path, f"signed with another key: got {hint!s:.64}, expected {expected}")


def _read(path: Path) -> tuple[dict[str, Any], _Envelope]:
    """The verification material and the envelope of a signature."""
    try:
        if path.is_symlink() or not path.is_file():
            _refuse(path, "missing file: the folder is not signed; sign it with hearth sign")
        if (size := path.stat().st_size) > _MAX_BYTES:
            _refuse(path, f"got {size} bytes, expected at most {_MAX_BYTES}")
        data = typed(_SignatureFile, strict_json.parse(path.read_text(encoding="utf-8")))
    except OSError as error:
        _refuse(path, f"cannot be read: {error.strerror}")
    except ValueError as error:
        _refuse(path, f"not a signature: {error}")
    return data["verificationMaterial"], data["dsseEnvelope"]


def _parse_statement(path: Path, payload: bytes) -> SignedFiles:
    try:
        statement = typed(_Statement, strict_json.parse(payload.decode()))
        digests = _digests(statement["predicate"]["resources"])
        root = hashlib.sha256(b"".join(map(bytes.fromhex, digests.values()))).hexdigest()
        if statement["subject"][0]["digest"]["sha256"] != root:
            raise ValueError("the digest of the subject does not match the digests of the files")
    except ValueError as error:
        _refuse(path, f"not a statement that Hearth reads: {error}")
    ignored = statement["predicate"]["serialization"].get("ignore_paths", ())
    return SignedFiles(digests, (*_NEVER_SIGNED, *ignored))


def _digests(resources: list[_Resource]) -> dict[str, str]:
    digests: dict[str, str] = {}
    for resource in resources:
        name, digest = resource["name"], resource["digest"]
        if len(bytes.fromhex(digest)) != hashlib.sha256().digest_size:
            raise ValueError(f"{name!r:.80}: got {digest!r:.80}, expected a sha256")
        if name in digests:
            raise ValueError(f"{name!r:.80} is there twice")
        digests[name] = digest
    return digests


def _compare_names(folder: Path, signed: SignedFiles) -> None:
    present = set(_files(folder, signed.ignored))
    if added := present - signed.sha256.keys():
        _refuse(folder / min(added), "was added after the folder was signed; remove it")
    if missing := signed.sha256.keys() - present:
        _refuse(folder / min(missing), "missing file: it was signed; copy the whole folder again")


def _files(folder: Path, ignored: Iterable[str]) -> Iterator[str]:
    """The paths of all files in a folder that are not ignored; refuses anything but files."""
    skipped = set(ignored)
    for root, folders, files in os.walk(folder, onerror=_raise):
        here = Path(root).relative_to(folder)
        folders[:] = [name for name in folders if (here / name).as_posix() not in skipped]
        for name in (*folders, *files):
            path = Path(root) / name
            relative = (here / name).as_posix()
            if relative in skipped:
                continue
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                _refuse(path, "is not a file; a signed folder has only files")
        yield from (
            relative for name in files if (relative := (here / name).as_posix()) not in skipped
        )


def _raise(error: OSError) -> NoReturn:
    raise BadSignature(f"{error.filename}: cannot be read: {error.strerror}") from error


def _compare(folder: Path, signed: SignedFiles, digests: dict[str, str]) -> None:
    """Refuse a file whose digest differs from the signed one; `digests` are the folder's."""
    for name, sha256 in digests.items():
        if name not in signed.sha256:
            _refuse(folder / name, f"is not signed: {SIGNATURE} does not name it")
        if signed.sha256[name] != sha256:
            _refuse(folder / name, "was changed after the folder was signed; copy it again")


def _refuse(path: Path, problem: str) -> NoReturn:
    raise BadSignature(f"{path}: {problem}")
