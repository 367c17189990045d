"""What is installed: the locks hold every package with hashes, in the versions that were tested together."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.drawn import ROOT

LOCKS = ("requirements.lock", "requirements-dev.lock")


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def pins(name):
    """The versions by name that a file of `name==version` lines pins."""
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;\\]+)", read(name), re.MULTILINE)
    return {canonicalize_name(package): version for package, version in found}


def required(name):
    lines = (line.split(" #")[0].strip() for line in read(name).splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_of_a_lock_has_hashes_and_nothing_is_built_from_source(lock):
    text = read(lock)
    assert re.search(r"^--require-hashes\n--only-binary :all:$", text, re.MULTILINE)
    entries = re.split(r"\n(?=\S)", text.partition(":all:\n")[2].strip())
    assert len(entries) == len(pins(lock)) > 10
    for entry in entries:
        assert re.fullmatch(r"\S+==\S+( ; [^\\]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+", entry), entry[:80]


def test_the_locks_hold_the_versions_of_the_constraints_but_for_pillow():
    constraints = pins("constraints.txt")
    for lock in LOCKS:
        for name, version in pins(lock).items():
            if name == "pillow":
                assert version.startswith("13.")  # gradio's cap keeps it below 13 in any other file
            elif name in constraints:
                assert version == constraints[name], f"{name}: run `make lock`"


@pytest.mark.parametrize(
    ("file", "locks"), [("requirements.txt", LOCKS[:1]), ("requirements-dev.txt", LOCKS)]
)
def test_a_lock_covers_its_requirements_all_but_torch(file, locks):
    locked = {name: version for lock in locks for name, version in pins(lock).items()}
    for requirement in required(file):
        name = canonicalize_name(requirement.name)
        if name == "torch":
            assert name not in locked
        else:
            assert locked.get(name, "none") in requirement.specifier, f"{name}: run `make lock`"


def test_make_and_docker_install_from_the_lock():
    assert "install --quiet --no-deps -r $(LOCK)" in read("Makefile")
    assert "install --quiet --no-deps -r requirements-dev.lock" in read("Makefile")
    assert "--no-deps -r requirements.lock" in read("Dockerfile")


def test_the_bill_of_materials_lists_what_is_installed_with_hashes():
    done = subprocess.run(
        [sys.executable, str(ROOT / ".ci" / "sbom.py")], capture_output=True, text=True, check=True
    )
    bill = json.loads(done.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    components = {component["name"]: component for component in bill["components"]}
    assert {"torch", "gradio", "pillow", "safetensors"} <= set(components)
    gradio = components["gradio"]
    assert gradio["purl"] == f"pkg:pypi/gradio@{gradio['version']}"
    assert gradio["hashes"]


@pytest.mark.parametrize("target", ["lock", "sbom", "audit"])
def test_what_the_security_document_names_exists(target):
    assert f"make {target}" in read("SECURITY.md")
    assert re.search(rf"^{target}:", read("Makefile"), re.MULTILINE)
