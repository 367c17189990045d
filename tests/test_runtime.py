"""Devices, seeds and memory are reported as they are; torchvision imports even with a CPU-only torch."""

from __future__ import annotations

import subprocess
import sys
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from atlas_engine import runtime
from atlas_engine.errors import ConfigError


def run_python(code: str, *words: str) -> str:
    command = [sys.executable, "-W", "error", "-c", code, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_mismatched_torchvision_is_repaired_even_after_a_failed_import_and_a_matched_one_left_alone():
    code = "\n".join(
        [
            "expected = 'matched'",
            "try: import torchvision",
            "except RuntimeError: expected = 'repaired'",
            "from atlas_engine import runtime",
            "state = runtime.ensure_torchvision()",
            "import torch, torchvision.ops",
            "from torchvision.transforms import v2",
            "resized = v2.Resize((4, 5), antialias=True)(torch.zeros(3, 8, 8))",
            "print(state == expected, runtime.ensure_torchvision() == expected, tuple(resized.shape))",
        ]
    )
    assert run_python(code) == "True True (3, 4, 5)"


def test_another_failure_is_not_hidden_and_a_working_torchvision_is_not_touched(tmp_path):
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('the disk is on fire')")
    code = "\n".join(
        [
            f"import sys, types; sys.path.insert(0, {str(tmp_path)!r})",
            "from atlas_engine import runtime",
            "try: runtime.ensure_torchvision()",
            "except RuntimeError as error: print(error)",
            "fine = sys.modules['torchvision'] = types.ModuleType('torchvision')",
            "print(runtime.ensure_torchvision(), sys.modules['torchvision'] is fine)",
            "print(hasattr(runtime.torch.ops.torchvision, 'nms'))",
        ]
    )
    assert run_python(code).splitlines() == ["the disk is on fire", "matched True", "False"]


def test_many_threads_may_ensure_torchvision_at_once():
    with ThreadPoolExecutor(8) as pool:
        states = {state.result() for state in [pool.submit(runtime.ensure_torchvision) for _ in range(16)]}
    assert len(states) == 1


def test_the_device_follows_the_name_then_the_environment(monkeypatch):
    monkeypatch.setenv("ATLAS_DEVICE", "cpu")
    assert runtime.pick_device() == torch.device("cpu")
    monkeypatch.setenv("ATLAS_DEVICE", "quantum")
    assert runtime.pick_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match="device 'quantum' is not known"):
        runtime.pick_device()


def test_an_absent_device_is_refused_in_words():
    absent = f"cuda:{torch.cuda.device_count()}"
    with pytest.raises(
        ConfigError, match=rf"device '{absent}' was asked for but torch .* sees \d+ of kind cuda"
    ):
        runtime.pick_device(absent)


@pytest.mark.parametrize("name", ["cuda:x", "cpu:-1", ":", "CPU", "cuda:0:1"])
def test_a_mangled_device_name_is_refused(name):
    with pytest.raises(ConfigError, match="is not known"):
        runtime.pick_device(name)


def test_a_generator_repeats_itself_and_leaves_the_global_one_alone():
    before = torch.get_rng_state()
    first = torch.randn(5, generator=runtime.generator(7))
    assert torch.equal(first, torch.randn(5, generator=runtime.generator(7)))
    assert not torch.equal(first, torch.randn(5, generator=runtime.generator(8)))
    assert torch.equal(before, torch.get_rng_state())
    with pytest.raises(ConfigError, match="seed is -1"):
        runtime.generator(-1)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_the_memory_report_sees_an_allocation():
    code = "\n".join(
        [
            "import torch",
            "from atlas_engine import runtime",
            "before = runtime.memory_report()",
            "block = torch.ones(32 * 2**20, dtype=torch.uint8)",
            "after = runtime.memory_report()",
            "grown = after.resident_nbytes - before.resident_nbytes",
            "assert grown > 24 * 2**20, 'the allocator may give back some others meanwhile'",
            "assert after.peak_nbytes >= block.numel()",
            "assert after.available_nbytes <= after.total_nbytes",
        ]
    )
    run_python(code)  # this one may hold freed memory that an allocation would come from


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc can keep memory")
def test_kept_memory_is_not_faulted_in_again():
    code = "\n".join(
        [
            "import resource, sys, torch",
            "from atlas_engine import runtime",
            "kept = runtime.keep_memory() if sys.argv[1:] else False",
            "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt",
            "for _ in range(20): torch.ones(2**24)",
            "before = faults()",
            "for _ in range(10): torch.ones(2**24)",
            "print(kept, faults() - before)",
        ]
    )
    kept, faults = run_python(code, "keep").split()
    _, usual = run_python(code).split()
    assert kept == "True"
    assert int(faults) * 10 < int(usual), "64 MiB are 16384 pages; once warm, they need not be touched anew"


def test_versions_are_those_installed():
    found = runtime.versions()
    assert found["torch"] == torch.__version__
    assert found["python"].split(".")[0] == "3"


def test_images_get_their_channels_last_and_are_not_kept():
    images = torch.rand(2, 3, 4, 5)
    converted = runtime.to_channels_last(images)
    assert converted.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(converted, images)
    tokens = torch.rand(2, 3, 4)
    assert runtime.to_channels_last(tokens) is tokens
    kept = weakref.ref(converted)
    del converted
    assert kept() is None, "a run would hold every batch for good"


# ---- autocast


def test_a_cpu_runs_towers_in_their_own_precision(monkeypatch):
    monkeypatch.delenv("ATLAS_AUTOCAST", raising=False)
    assert runtime.autocast_dtype(torch.device("cpu")) is None
    with runtime.autocast(torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


@pytest.mark.parametrize(
    ("word", "dtype"), [("bfloat16", torch.bfloat16), ("float16", torch.float16), ("off", torch.float32)]
)
def test_a_setting_chooses_the_precision_on_every_device(word, dtype, monkeypatch):
    monkeypatch.setenv("ATLAS_AUTOCAST", word)
    with runtime.autocast(torch.device("cpu")):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype


def test_an_unknown_precision_is_refused_with_the_nearest(monkeypatch):
    monkeypatch.setenv("ATLAS_AUTOCAST", "bfloat")
    with pytest.raises(ConfigError, match="Did you mean 'bfloat16'"):
        runtime.autocast_dtype(torch.device("cpu"))


def test_a_gpu_that_only_emulates_bfloat16_takes_float16(monkeypatch):
    monkeypatch.delenv("ATLAS_AUTOCAST", raising=False)
    # a GPU of 2018 says yes where emulation counts, one of 2020 in any case
    for own, wanted in ((False, torch.float16), (True, torch.bfloat16)):
        answer = lambda including_emulation=True, own=own: own or including_emulation  # noqa: E731
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", answer)
        assert runtime.autocast_dtype(torch.device("cuda")) == wanted
