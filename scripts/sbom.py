"""`make sbom`: what Paperclip is made of, as CycloneDX, from the pinned requirements."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(target: Path) -> int:
    """Writes the bill to `target` and says so; returns the exit code. Asks nobody."""
    done = subprocess.run(
        [
            # It warns that the product itself names no dependencies: they are the file's lines.
            *(sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements"),
            *("--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible"),
            *("--of", "JSON", "-o", str(target), str(ROOT / "requirements.txt")),
        ]
    )
    if done.returncode == 0:
        print(target)  # noqa: T201 - this is its answer
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
