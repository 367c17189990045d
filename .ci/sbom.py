"""Print the software bill of materials of this environment: CycloneDX 1.6, as JSON.

    make sbom          # writes sbom.json

A component for each installed package, with its licence and the sha256 of its wheels from the lock files.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
OWN = "atlas-studio"


def main() -> None:
    """Print the document."""
    hashes = read_hashes()
    installed = {canonicalize_name(found.metadata["Name"]): found for found in metadata.distributions()}
    own = installed.pop(OWN, None)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "name": OWN, "version": own.version if own else ""}
        },
        "components": [
            describe(name, found, hashes.get((name, found.version), []))
            for name, found in sorted(installed.items())
        ],
    }
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


def describe(name: str, found: metadata.Distribution, hashes: list[str]) -> dict[str, object]:
    """The component of one package."""
    licence = found.metadata.get("License-Expression") or found.metadata.get("License") or ""
    first_line = licence.strip().splitlines()[0][:100] if licence.strip() else ""
    return {
        "type": "library",
        "name": name,
        "version": found.version,
        "purl": f"pkg:pypi/{name}@{found.version}",
        **({"licenses": [{"license": {"name": first_line}}]} if first_line else {}),
        **({"hashes": [{"alg": "SHA-256", "content": one} for one in hashes]} if hashes else {}),
    }


def read_hashes() -> dict[tuple[str, str], list[str]]:
    """The hashes of the lock files, by name and version."""
    found: dict[tuple[str, str], list[str]] = {}
    for lock in LOCKS:
        for entry in re.split(r"\n(?=\S)", (ROOT / lock).read_text(encoding="utf-8")):
            if pin := re.match(r"([a-z0-9-]+)==([^ ;]+)", entry):
                found[pin[1], pin[2]] = re.findall(r"sha256:([0-9a-f]{64})", entry)
    return found


if __name__ == "__main__":
    main()
