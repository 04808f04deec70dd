"""Compare a bundle with NumPy while it is used: what `hearth bake --verify-later` left out."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from typing_extensions import override

from hearthd.bundle import BundleError, LanguageManifest, read_manifest
from hearthd.bundle.kept_bundles import is_kept
from hearthd.runtime.system.operating_system import lower_priority

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from hearthd.runtime.checks.self_test import Verdict

log = logging.getLogger(__name__)

# The exit status of `hearth verify` if a program does not compute what NumPy does.
COMPARISON_FAILED = 3


class LaterVerification(threading.Thread):
    """Runs `hearth verify` of a bundle with a low priority, unless it was compared before.

    It begins when it is told to, which is after the first answer: the two would slow each other
    down. `result` is the line that a user should read, once there is one, and `passed` is called
    with each verdict of a comparison that found no difference. If the bundle is wrong,
    SIGTERM ends this process, and a bundle that a command baked from weights is removed. The end of
    this process ends the comparison, which begins again when the bundle is used again.
    """

    def __init__(self, bundle: Path, passed: Callable[[Verdict], None] = lambda _: None) -> None:
        super().__init__(name="later-verification", daemon=True)
        self.result = ""
        self._bundle = bundle
        self._passed = passed
        self._begun = False

    def begin(self) -> None:
        """Start, unless it was told to before, or the bundle was compared before."""
        if not self._begun:
            self._begun = True
            if not _compared(self._bundle):
                self.start()

    @override
    def run(self) -> None:
        """Called by `start`."""
        self._report(_verify(self._bundle))

    def _report(self, comparison: Comparison) -> None:
        if comparison.status == 0:
            self.result = f"{self._bundle.name} was compared with NumPy: {comparison.message}"
            log.info("%s", self.result)
            for verdict in comparison.verdicts:
                self._passed(verdict)
        elif comparison.status == COMPARISON_FAILED:
            removed = is_kept(self._bundle)  # nothing that a user made is removed
            if removed:
                shutil.rmtree(self._bundle, ignore_errors=True)
            log.error(
                "%s; answers so far are wrong%s",
                comparison.message,
                ", the bundle is removed" * removed,
            )
            os.kill(os.getpid(), signal.SIGTERM)
        else:
            self.result = f"{self._bundle.name} was not compared with NumPy: {comparison.message}"
            log.warning("%s", self.result)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What `hearth verify` found: its exit status, the verdicts on programs, and its errors."""

    status: int
    verdicts: Sequence[Verdict] = ()
    errors: str = ""

    @property
    def message(self) -> str:
        """The verdicts as sentences; without any, the last error."""
        messages = [verdict.message for verdict in self.verdicts]
        return "; ".join(messages) or self.errors.strip().rpartition("\n")[2] or str(self.status)


def _compared(bundle: Path) -> bool:
    try:
        manifest = read_manifest(bundle)
    except BundleError:  # who opens it reports that
        return True
    return not isinstance(manifest, LanguageManifest) or bool(manifest.golden)


def _verify(bundle: Path) -> Comparison:
    """Run `hearth verify`."""
    from hearthd.baker.compiler.child_process import child_process  # not on every device
    from hearthd.runtime.checks.self_test import Verdict

    command = [sys.executable, "-P", "-m", "hearthd", "verify", "--json", "--", str(bundle)]
    with child_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        lower_priority(child.pid)
        output, errors = child.communicate()
    verdicts = json.loads(output or b"{}").values()
    return Comparison(
        status=child.returncode,
        verdicts=[Verdict.from_json(fields) for fields in verdicts],
        errors=errors.decode(errors="replace"),
    )
