"""An arm64 Debian in a folder, as a Raspberry Pi has it, and commands in it on a chosen CPU.

The packages are Debian's, fetched by apt and only unpacked: no maintainer script runs. QEMU comes
the same way. A command runs in a user namespace of its own, in which the kernel hands ARM programs
to QEMU; namespace, mounts and that rule are gone when the command ends. So no root is needed, and
the machine stays as it is. Needs Linux 6.7, whose namespaces have such rules of their own.

Nothing here knows of models or bundles.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Raspberry Pi OS is Debian's: 12, whose Python is the oldest that Hearth runs on.
SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
# What every Raspberry Pi OS has, as far as the commands of docs/small-devices.md use it.
BASE = ("bash", "ca-certificates", "coreutils", "curl", "dash", "libstdc++6", "python3")
HOME = "/home/pi"
QEMU = "/usr/bin/qemu-aarch64-static"

_NEEDED = ("apt-get", "dpkg", "tar", "unshare")
# How the kernel knows an executable of ARM's: an ELF header of 64 bits, its machine 183.
_MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
# In the namespace, where we may mount: F has the kernel open QEMU now, for use inside the root.
_ENTER = rf"""
root=$1 cpu=$2 pip_cache=$3
shift 3
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf %s ':hearth:M::{_MAGIC}:{_MASK}:'"$root{QEMU}:F" > /proc/sys/fs/binfmt_misc/register
mount --rbind /proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind /etc/resolv.conf "$root/etc/resolv.conf"
mount --bind "$pip_cache" "$root{HOME}/.cache/pip"
chroot=$(PATH="$PATH:/usr/sbin:/sbin" command -v chroot)
exec env -i PATH=/usr/bin:/bin HOME={HOME} QEMU_CPU="$cpu" \
    "$chroot" "$root" /bin/sh -c 'cd; exec "$@"' sh "$@"
"""


class CannotEmulate(Exception):
    """This machine cannot make or enter an arm64 root. The message says what it lacks."""


@dataclass(frozen=True, kw_only=True)
class Root:
    """An arm64 root: its folder, and one in which its pip keeps downloads."""

    folder: Path
    pip_cache: Path

    @property
    def home(self) -> Path:
        """The home folder of its user, where commands start."""
        return self.folder / HOME.lstrip("/")

    def command(self, cpu: str, *command: str) -> list[str]:
        """The command line here that runs a command in the root on a CPU, by QEMU's name."""
        places = (str(self.folder), cpu, str(self.pip_cache))
        return ["unshare", "-Urm", "bash", "-euc", _ENTER, "enter", *places, *command]


def make_root(root: Root, downloads: Path, packages: Sequence[str]) -> None:
    """Make an arm64 root with packages besides BASE; what is fetched stays among the downloads.

    A root that was half made is made anew. Raises CannotEmulate.
    """
    _check_machine()
    apt = _Apt(downloads)
    apt.run("update")
    if root.folder.exists():
        shutil.rmtree(root.folder)
    root.folder.mkdir(parents=True)
    for package in apt.fetch("arm64", (*BASE, *packages)):
        _unpack(package, root.folder)
    (emulator,) = apt.fetch(_debian_name(), ("qemu-user-static",))
    _unpack(emulator, root.folder, f".{QEMU}")
    certificates = root.folder / "etc/ssl/certs"
    for path in (root.pip_cache, root.home / ".cache/pip", certificates):
        path.mkdir(parents=True, exist_ok=True)
    (root.folder / "etc/resolv.conf").touch()
    # A maintainer script would have collected them.
    shutil.copy(CERTIFICATES, certificates)
    entered = subprocess.run(
        root.command("max", "uname", "-m"), capture_output=True, text=True, check=False
    )
    if entered.stdout != "aarch64\n":
        raise CannotEmulate(
            "no ARM program runs in a user namespace here (wanted: Linux 6.7 or newer, and the "
            f"right to make one): {entered.stderr.strip()}"
        )


class _Apt:
    """apt with lists, packages and settings of its own: what this machine has plays no part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._settings = folder / "apt.conf"
        for name in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "etc/apt"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()  # nothing is installed: apt fetches all that is depended on
        (folder / "etc/apt/sources.list").write_text(
            f"deb [signed-by={KEYRING}] {MIRROR} {SUITE} main\n"
        )
        self._settings.write_text(
            f'Dir "{folder}";\nDir::State::status "{folder}/status";\n'
            f'APT::Architectures {{ "{_debian_name()}"; "arm64"; }};\n'
            'APT::Install-Recommends "false";\nAPT::Sandbox::User "";\n'
            'Acquire::Languages "none";\n'
        )

    def run(self, *arguments: str) -> str:
        """What apt-get prints; raises CannotEmulate with what it complains of."""
        done = subprocess.run(
            ["apt-get", "-q", *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "APT_CONFIG": str(self._settings), "LC_ALL": "C"},
        )
        if done.returncode:
            raise CannotEmulate(f"apt-get {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def fetch(self, architecture: str, packages: Sequence[str]) -> list[Path]:
        """Fetch packages and all that they depend on; their files."""
        install = ("-o", f"APT::Architecture={architecture}", "install", "-y", *packages)
        self.run("--download-only", *install)
        planned = re.findall(
            r"^Inst (\S+) \((\S+) .*\[(\w+)\]\)", self.run("--simulate", *install), re.MULTILINE
        )
        archives = self.folder / "var/cache/apt/archives"
        return [
            archives / f"{name}_{version.replace(':', '%3a')}_{package_architecture}.deb"
            for name, version, package_architecture in planned
        ]


def _unpack(package: Path, folder: Path, *only: str) -> None:
    """Unpack a package into a folder, or only some of its files."""
    with subprocess.Popen(["dpkg", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as tar:
        subprocess.run(["tar", "-x", "-C", str(folder), *only], stdin=tar.stdout, check=True)
    if tar.returncode:
        raise CannotEmulate(f"{package} cannot be unpacked")


def _check_machine() -> None:
    missing = [name for name in _NEEDED if shutil.which(name) is None]
    missing += [str(path) for path in (KEYRING, CERTIFICATES) if not path.is_file()]
    if missing:
        raise CannotEmulate(f"missing here: {', '.join(missing)}")
    if _debian_name() == "arm64":
        raise CannotEmulate("this machine is an ARM machine: run the bundle on it")


def _debian_name() -> str:
    """This machine's architecture, by Debian's name."""
    done = subprocess.run(
        ["dpkg", "--print-architecture"], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()
