"""Every reader that is fuzzed, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.fuzz.bundle_readers import BUNDLES
from tools.fuzz.media_readers import MEDIA
from tools.fuzz.request_readers import REQUESTS
from tools.fuzz.weights import WEIGHTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tools.fuzz.reader import Reader

READERS: Mapping[str, Reader] = {
    reader.name: reader for reader in (*WEIGHTS, *BUNDLES, *REQUESTS, *MEDIA)
}
