"""The systemd unit of a server: hearth.service, then the lines of a user or of the system."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from hearthd.bundle import bundle_home

NAME = "hearth.service"
_FOLDER = Path(__file__).parent
# What ProtectHome= and the private /tmp of DynamicUser= hide.
_HIDDEN = tuple(map(Path, ("/home", "/root", "/run/user", "/tmp", "/var/tmp")))
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "%": "%%"})
_NOT_IN_PROGRAM = frozenset("\"'\\")


class CannotInstall(Exception):
    """The unit cannot be written, or could not run. The message says what to do."""


class Scope(NamedTuple):
    """A service manager that runs the service.

    part       the file with the lines that only its units have
    systemctl  the command that controls it
    folder     of its units; ~ is the user's home
    settings   the file with settings of the service
    """

    part: str
    systemctl: str
    folder: Path
    settings: Path


SYSTEM = Scope("system.conf", "systemctl", Path("/etc/systemd/system"), Path("/etc/default/hearth"))


def user_scope() -> Scope:
    """The manager of this user; raises NotABundle if the user's home is not known."""
    configuration = bundle_home.expanded(Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config"))
    return Scope(
        "user.conf",
        "systemctl --user",
        configuration / "systemd/user",
        configuration / "hearth/hearth.env",
    )


def unit_text(scope: Scope, bundle: Path, home: Path, python: Path) -> str:
    """The unit that serves a bundle with an interpreter; `home` is HEARTH_HOME of a user.

    Raises CannotInstall for a path that a unit cannot have.
    """
    if _NOT_IN_PROGRAM & {*str(python)}:
        raise CannotInstall(
            f"{python}: systemd starts no program with a quote or a backslash in its path; install "
            "Hearth in another folder"
        )
    parts = (_FOLDER / name for name in (NAME, scope.part))
    return "".join(part.read_text(encoding="utf-8") for part in parts).format(
        bundle=_quoted(str(bundle)),
        home=_quoted(f"{bundle_home.ENVIRONMENT}={home}"),
        python=_quoted(str(python)),
    )


def _quoted(word: str) -> str:
    """A word of ExecStart= or Environment=, by the rules of systemd.service(5) and systemd.exec(5).

    They differ in the dollar sign, which has no meaning in Environment= and after a colon.
    """
    if not word.isprintable():
        raise CannotInstall(
            f"{word!r}: a unit cannot have a path with control characters or invalid UTF-8; "
            "rename the folder"
        )
    return f'"{word.translate(_ESCAPED)}"'


def check_visible(*folders: Path) -> None:
    """Raise CannotInstall for a folder that the service of the machine cannot see."""
    for folder in folders:
        for hidden in _HIDDEN:
            if folder.resolve().is_relative_to(hidden):
                raise CannotInstall(
                    f"{folder}: a service of the machine cannot read files in {hidden}; install "
                    "Hearth in /opt/hearth and keep the bundle in /srv/hearth, or omit --system"
                )
