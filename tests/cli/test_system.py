"""`atlas doctor` and `atlas cache`, run as a person runs them."""

from __future__ import annotations

import json
import sqlite3

import pytest
import torch

from atlas_engine.cache import Cache
from atlas_engine.cli import main, system
from atlas_engine.cli.system import Finding


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_doctor_tells_versions_device_memory_model_bank_and_cache(folder, capsys):
    code = main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    found = {finding["name"]: finding for finding in report["findings"]}
    assert code == (0 if report["ok"] else 1)
    assert found["torch"]["detail"] == torch.__version__
    wanted = {"torchvision pair", "device", "kernels", "memory", "bank", "cache", "chromium", "text weights"}
    assert wanted <= set(found)
    assert found["decoder sandbox"]["ok"] == ("could read" not in found["decoder sandbox"]["detail"])
    assert found["kernels"]["detail"].split()[0] in ("numba", "torch", "triton")
    assert any("model" in name for name in found)
    assert str(folder) in found["cache"]["detail"]
    assert not folder.exists(), "the doctor only looks"


def test_the_doctor_fails_only_for_what_is_essential(capsys, monkeypatch):
    missing = Finding("thing", False, "not there", essential=True, remedy="fetch the thing")
    remark = Finding("nicety", False, "not there", essential=False, remedy="fetch the nicety")
    monkeypatch.setattr(system, "CHECKS", (lambda: [remark],))
    assert main(["doctor"]) == 0
    monkeypatch.setattr(system, "CHECKS", (lambda: [remark], lambda: [missing]))
    capsys.readouterr()
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["nicety", "note", "not", "there"]
    assert lines[2].split() == ["thing", "missing", "not", "there"]
    assert lines[-3:] == ["to mend it:", "  fetch the nicety", "  fetch the thing"]


def test_a_check_that_breaks_is_a_finding_and_the_others_still_run(capsys, monkeypatch):
    def check_torch():
        raise ImportError("libtorch.so: cannot open shared object file")

    monkeypatch.setattr(system, "CHECKS", (check_torch, system.check_python))
    assert main(["doctor", "--json"]) == 1
    first, *others = json.loads(capsys.readouterr().out)["findings"]
    assert (first["name"], first["ok"]) == ("torch", False)
    assert "libtorch.so" in first["detail"]
    assert [finding["name"] for finding in others] == ["atlas-studio", "python"]


@pytest.mark.parametrize(
    ("version", "safe"), [("13.0.0", True), ("14.1", True), ("12.3.0", False), (None, False)]
)
def test_an_old_pillow_is_noted_with_its_remedy(version, safe):
    finding = system._pillow(version)
    assert finding.ok is safe
    assert not finding.essential
    assert finding.remedy == 'pip install --no-deps "pillow>=13,<14"'


def test_a_cache_folder_that_cannot_be_written_is_noted(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "file" / "cache"))
    (finding,) = system.check_cache()
    assert not finding.ok
    assert "not writable" in finding.detail


def test_the_bank_is_counted(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_ASSETS", str(tmp_path))
    assert [finding.ok for finding in system.check_bank()] == [False]
    (tmp_path / "bank").mkdir()
    (tmp_path / "bank" / "cars.safetensors").write_bytes(bytes(2048))
    (finding,) = system.check_bank()
    assert (finding.ok, finding.detail) == (True, "1 files, 2.0 KiB")


def test_cache_path_size_and_clear(folder, capsys):
    assert main(["cache", "path"]) == 0
    assert main(["cache", "size"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(folder), "0 B"]
    with Cache(folder) as cache:
        cache.put_bytes("key", bytes(200_000))
    assert main(["cache", "size", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nbytes"] > 200_000
    assert main(["cache", "clear"]) == 0
    assert capsys.readouterr().out.endswith("KiB freed\n")
    with Cache(folder) as cache:
        assert len(cache) == 0


def test_cache_clear_mends_a_cache_that_is_refused(folder, capsys):
    folder.mkdir()
    connection = sqlite3.connect(folder / "cache.db")
    connection.execute("CREATE TABLE diary (day)")
    connection.close()
    assert main(["cache", "clear", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["freed_nbytes"] > 0
    assert not (folder / "cache.db").exists()
