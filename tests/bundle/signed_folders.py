"""Folders that are signed for tests, from the specification of OpenSSF Model Signing 1.0.

This is independent of bundle/signature.py, and can sign what no signer would.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

if TYPE_CHECKING:
    from pathlib import Path

SIGNATURE = "model.sig"
PAYLOAD_TYPE = "application/vnd.in-toto+json"


class SigningKey:
    """A pair of keys, and the files that have them."""

    def __init__(self, folder: Path, curve: ec.EllipticCurve | None = None) -> None:
        self.key = ec.generate_private_key(curve or ec.SECP256R1())
        folder.mkdir(parents=True, exist_ok=True)
        self.private = folder / "private.pem"
        self.private.write_bytes(
            self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        )
        self.pem = self.key.public_key().public_bytes(
            Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
        )
        self.public = folder / "public.pem"
        self.public.write_bytes(self.pem)

    def sign(self, folder: Path, **changes: Any) -> None:
        """Sign a folder; `changes` as for `statement`."""
        self.sign_payload(folder, json.dumps(statement(folder, **changes)).encode())

    def sign_payload(
        self, folder: Path, payload: bytes, /, *, prefix: bytes = b"DSSEv1", **envelope: Any
    ) -> None:
        """Write the signature of a payload; `prefix` begins the signed text."""
        sizes = {256: hashes.SHA256(), 384: hashes.SHA384(), 521: hashes.SHA512()}
        text = b" ".join(
            [prefix, b"%d" % len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), b"%d" % len(payload)]
        )
        value = self.key.sign(text + b" " + payload, ec.ECDSA(sizes[self.key.curve.key_size]))
        signed = {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "publicKey": {"hint": hashlib.sha256(self.pem).hexdigest()},
                "tlogEntries": [],
            },
            "dsseEnvelope": {
                "payload": base64.b64encode(payload).decode(),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{"sig": base64.b64encode(value).decode(), "keyid": ""}],
                **envelope,
            },
        }
        (folder / SIGNATURE).write_text(json.dumps(signed))


def statement(
    folder: Path,
    *,
    serialization: dict[str, Any] | None = None,
    resources: list[dict[str, str]] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """The statement of a folder's files, with some of its fields changed."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != SIGNATURE)
    if resources is None:
        resources = [
            {
                "name": path.relative_to(folder).as_posix(),
                "algorithm": "sha256",
                "digest": hashlib.sha256(path.read_bytes()).hexdigest(),
            }
            for path in files
        ]
    digests = b"".join(bytes.fromhex(resource["digest"]) for resource in resources)
    method = {"method": "files", "hash_type": "sha256", "allow_symlinks": False}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "x", "digest": {"sha256": hashlib.sha256(digests).hexdigest()}}],
        "predicateType": "https://model_signing/signature/v1.0",
        "predicate": {"serialization": method | (serialization or {}), "resources": resources},
        **changes,
    }
