"""Write requirements.lock and requirements-dev.lock: each package with the sha256 of its wheels.

    make lock

The packages are those that requirements.txt and requirements-dev.txt lead to in this environment. Their
versions come from constraints.txt, the hashes from PyPI, which has one for each wheel of each version.

What only makes uvicorn faster is left out: the tests serve the page as the first file does.

torch is left out. PyPI has it with CUDA, an index of CPU wheels has another build of the same version, and
pip takes hashes for all packages of a file or for none. What torch needs besides itself is in the lock.
"""

from __future__ import annotations

import html
import re
import sys
import urllib.request
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from pip._internal.models.index import PyPI

ROOT = Path(__file__).resolve().parent.parent
INDEX = PyPI.simple_url + "/{name}/"
PYTHON = (3, 11)
LEFT_OUT = {"torch"}
FASTER_SERVERS = {"uvloop", "httptools"}  # what Ray's servers would like, and the page has not
ONLY_ON = {"triton": ' ; platform_system == "Linux" and platform_machine == "x86_64"'}  # has no other wheels
OVER_THE_CAP = {"pillow": "13.0.0"}  # gradio asks for less than 13; see requirements.txt
HEADER = """\
# {what}, for Python 3.11: written by `make lock`, not by hand. torch is not in it; see SECURITY.md.
#   pip install --no-deps -r {name}
--require-hashes
--only-binary :all:
"""
PLATFORMS = ("any", "manylinux", "macosx", "win_amd64")


def main() -> None:
    """Write both files."""
    pinned = dict(read_pins(ROOT / "constraints.txt")) | OVER_THE_CAP
    app = find_needed(read_requirements(ROOT / "requirements.txt"))
    dev = find_needed(read_requirements(ROOT / "requirements-dev.txt")) - app
    write_lock(ROOT / "requirements.lock", app - LEFT_OUT, pinned, what="What the app needs")
    write_lock(ROOT / "requirements-dev.lock", dev - LEFT_OUT, pinned, what="What the tests need besides")


def read_requirements(path: Path) -> list[Requirement]:
    """The requirements of a file, without its comments."""
    lines = (line.split(" #")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def read_pins(path: Path) -> Iterator[tuple[str, str]]:
    """Pairs (name, version) of a constraints file."""
    for requirement in read_requirements(path):
        (pin,) = requirement.specifier
        yield canonicalize_name(requirement.name), pin.version


def find_needed(requirements: Iterable[Requirement]) -> set[str]:
    """The names of all packages that the requirements lead to, as the installed packages tell."""
    found: set[str] = set()
    waiting = [(requirement, "") for requirement in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        if name in FASTER_SERVERS:
            continue
        is_new = name not in found
        found.add(name)
        for wanted in requirement.extras if not is_new else {"", *requirement.extras}:
            waiting += [(Requirement(text), wanted) for text in metadata.requires(name) or ()]
    return found


def write_lock(path: Path, names: set[str], pinned: dict[str, str], *, what: str) -> None:
    """Write one lock file."""
    parts = [HEADER.format(what=what, name=path.name)]
    for name in sorted(names):
        version = pinned.get(name) or metadata.version(name)
        hashes = sorted(find_hashes(name, version))
        if not hashes:
            sys.exit(f"{name} {version}: the index has no wheel for Python 3.11.")
        pin = f"{name}=={version}{ONLY_ON.get(name, '')}"
        parts.append(" \\\n".join([pin, *(f"    --hash=sha256:{one}" for one in hashes)]) + "\n")
    path.write_text("".join(parts), encoding="utf-8")
    sys.stderr.write(f"{path.name}: {len(names)} packages\n")


def find_hashes(name: str, version: str) -> Iterator[str]:
    """The sha256 of each wheel of a version that fits Python 3.11, on any system."""
    with urllib.request.urlopen(INDEX.format(name=name), timeout=60) as answer:
        page = html.unescape(answer.read().decode("utf-8"))
    for address, sha256 in re.findall(r'href="([^"#]+)#sha256=([0-9a-f]{64})"', page):
        file = address.rpartition("/")[2].replace("%2B", "+")
        if file.endswith(".whl") and fits(file, version):
            yield sha256


def fits(file: str, version: str) -> bool:
    """Whether a wheel is of this version and can be installed by Python 3.11 on a system we know."""
    try:
        _, found, _, tags = parse_wheel_filename(file)
    except ValueError:
        return False
    return str(found) == version and any(
        fits_python(tag.interpreter, tag.abi) and tag.platform.startswith(PLATFORMS) for tag in tags
    )


def fits_python(interpreter: str, abi: str) -> bool:
    """Whether Python 3.11 takes a wheel with these two tags.

    >>> fits_python("cp311", "cp311"), fits_python("cp39", "abi3"), fits_python("cp312", "cp312")
    (True, True, False)
    """
    if interpreter in ("py3", "py2.py3", "cp311"):
        return abi in ("none", "cp311", "abi3")
    older = re.fullmatch(r"(?:cp|py)3(\d+)", interpreter)
    return older is not None and int(older[1]) <= PYTHON[1] and abi in ("abi3", "none")


if __name__ == "__main__":
    main()
