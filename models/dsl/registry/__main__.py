"""`python -m hearthd.models.dsl.registry [--check]`: write the generated documents, or check them.

With `--check` nothing is written: the exit code is 1, and a line says what to run, when a document
is missing or is not what would be written now.
"""

import argparse
import sys
from pathlib import Path

from hearthd.models.dsl.registry.documents import COMMAND, documents


def main(arguments: list[str], root: Path) -> str | None:
    """Write the documents below `root`; with `--check`, report differences instead."""
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if stale")
    check = parser.parse_args(arguments).check
    stale = []
    for name, text in documents().items():
        path = root / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(f"{name} is {'stale' if path.exists() else 'missing'}")
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return f"{', '.join(stale)}: run {COMMAND}" if check and stale else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parents[3]))
