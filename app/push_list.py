"""What a Space needs of this repository, exactly: a list, or a folder ready to push.

    python -m app.push_list                          a line for each file with its size, and the sum
    python -m app.push_list --copy space             the same files in a folder
    python -m app.push_list --copy space --zero-gpu  with the torch that ZeroGPU takes
    python -m app.push_list --copy space --docker    as a Docker Space

Only files that git tracks are listed: no cache, no upload, nothing that was never reviewed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

__all__ = ["copy_files", "list_files", "main"]

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = ("tests/", ".ci/", "studies/")  # what checks and measures it
MEASUREMENTS = "assets/bench/*.json"  # left out; the documents that tell of them are pushed
LEFT_OUT_FILES = (".gitignore", "Makefile", "requirements-dev.txt", "requirements-dev.lock")
DOCKER_ONLY = ("Dockerfile", ".dockerignore", "constraints.txt", "requirements.lock")
ZERO_GPU_TORCH = {"torch": "2.11.0", "torchvision": "0.26.0"}  # the newest pair that ZeroGPU takes
GRADIO_KEYS = ("sdk", "sdk_version", "python_version", "app_file")
LARGE_FILES = "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"


def list_files(root: Path = ROOT, *, docker: bool = False) -> list[str]:
    """The tracked files that a Space needs, sorted; paths below `root`."""
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.split("\0")
    left_out = LEFT_OUT_FILES if docker else (*LEFT_OUT_FILES, *DOCKER_ONLY)
    return sorted(
        name
        for name in tracked
        if name
        and (root / name).is_file()
        and not name.startswith(LEFT_OUT)
        and name not in left_out
        and not fnmatch(name, MEASUREMENTS)
    )


def copy_files(folder: Path, root: Path = ROOT, *, docker: bool = False, zero_gpu: bool = False) -> list[str]:
    """Copy them into a new folder, with what git needs to know of large files; returns what is there."""
    names = list_files(root, docker=docker)
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / name, folder / name)
    (folder / ".gitattributes").write_text(LARGE_FILES, encoding="utf-8")
    if zero_gpu:
        _rewrite(folder / "requirements.txt", _with_zero_gpu_torch)
    if docker:
        _rewrite(folder / "README.md", _with_docker_front_matter)
    return [*names, ".gitattributes"]


def main(arguments: list[str] | None = None) -> int:
    """List, or copy and list."""
    options = _parser().parse_args(arguments)
    if options.copy is None:
        folder, names = ROOT, list_files(docker=options.docker)
    elif options.copy.exists():
        sys.stderr.write(f"{options.copy} is there already. Name a new folder.\n")
        return 2
    else:
        folder, names = (
            options.copy,
            copy_files(options.copy, docker=options.docker, zero_gpu=options.zero_gpu),
        )
    sizes = {name: (folder / name).stat().st_size for name in names}
    for name, nbytes in sizes.items():
        sys.stdout.write(f"{nbytes:>10}  {name}\n")
    sys.stdout.write(f"{sum(sizes.values()):>10}  in {len(sizes)} files\n")
    return 0


def _rewrite(path: Path, change: Callable[[str], str]) -> None:
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def _with_zero_gpu_torch(requirements: str) -> str:
    lines = []
    for line in requirements.splitlines():
        name, pinned, _ = line.partition("==")
        lines.append(f"{name}=={ZERO_GPU_TORCH[name]}" if pinned and name in ZERO_GPU_TORCH else line)
    return "\n".join(lines) + "\n"


def _with_docker_front_matter(readme: str) -> str:
    """The front matter of a Docker Space: it has a port, and no version of an SDK."""
    start, matter, rest = readme.split("---\n", maxsplit=2)
    lines = [line for line in matter.splitlines() if line.partition(":")[0] not in GRADIO_KEYS]
    return "---\n".join([start, "\n".join([*lines, "sdk: docker", "app_port: 7860", ""]), rest])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app.push_list",
        description="List what a Space needs of this repository, or copy it.",
        epilog="examples:\n  python -m app.push_list\n  python -m app.push_list --copy space --zero-gpu",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--copy", type=Path, metavar="FOLDER", help="new folder to copy them to")
    parser.add_argument("--docker", action="store_true", help="for a Docker Space")
    parser.add_argument("--zero-gpu", action="store_true", help="for a Space on ZeroGPU")
    return parser


if __name__ == "__main__":
    sys.exit(main())
