"""A helper process that is killed, stopped or out of memory costs one image and never the next."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import threading
import time
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

from atlas_engine.data import ImageLimits, read_image
from atlas_engine.data.sandbox import Decoder, shared_decoder
from atlas_engine.errors import AtlasError, ImageError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and /proc are POSIX")
linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

LIMITS = ImageLimits()


def png(width=16, height=16, *, rows=None):
    """A PNG of (16, 32, 16), opaque; with fewer rows than its header promises, it is small for its pixels."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    pixels = zlib.compress((b"\0" + b"\x10\x20\x10\xff" * width) * (height if rows is None else rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


GOOD = png()


@pytest.fixture
def decoder():
    with Decoder() as decoder:
        assert_works(decoder)
        yield decoder


def assert_works(decoder):
    pixels = decoder.decode(GOOD, name="good.png", limits=LIMITS)
    assert np.array_equal(pixels, np.full((16, 16, 3), (16, 32, 16)))


def wait_for_death(pid):
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_death_between_two_images_goes_unnoticed(decoder, how):
    first = decoder.pid
    os.kill(first, how)
    wait_for_death(first)
    assert_works(decoder)
    assert decoder.pid != first


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS])
def test_a_crash_during_a_image_names_it_and_the_next_one_works(decoder, how):
    first = decoder.pid
    os.kill(first, signal.SIGSTOP)  # the request is on its way, and surely not answered yet
    killer = threading.Timer(0.3, lambda: (os.kill(first, how), os.kill(first, signal.SIGCONT)))
    killer.start()
    with pytest.raises(ImageError, match=rf"^evil\.png: made the decoder crash \({how.name}\)"):
        decoder.decode(GOOD, name="evil.png", limits=LIMITS)
    killer.join()
    assert_works(decoder)


@pytest.mark.parametrize("nbytes", [len(GOOD), 8 << 20])
def test_a_image_that_hangs_is_stopped_in_time(decoder, nbytes):
    os.kill(decoder.pid, signal.SIGSTOP)  # 8 MiB do not fit in a pipe: there the parent hangs in its write
    began = time.monotonic()
    with pytest.raises(ImageError, match=r"^slow\.png: took longer than 0\.5 s"):
        decoder.decode(GOOD.ljust(nbytes, b"\0"), name="slow.png", limits=ImageLimits(seconds=0.5))
    assert time.monotonic() - began < 15  # 0.5 s and a busy machine, but not the 20 s of the default
    assert_works(decoder)


def test_a_image_that_wants_too_much_memory_is_refused_and_the_next_one_works():
    huge = png(7000, 7000, rows=2)  # 196 MB once its pixels are laid out, and as much again to shrink them
    limits = ImageLimits(max_pixels=50_000_000, seconds=200)
    with Decoder(address_space=448 << 20) as small:
        with pytest.raises(ImageError, match=r"^huge\.png: (needs more memory|made the decoder crash)"):
            small.decode(huge, name="huge.png", limits=limits)
        assert_works(small)
    with Decoder() as large:
        assert large.decode(huge, name="huge.png", limits=limits).shape == (448, 448, 3)


def test_threads_share_one_helper_and_each_gets_its_own_image(decoder):
    sizes = [16 + number for number in range(24)]
    found = {}

    def work(part):
        for size in part:
            found[size] = decoder.decode(png(size, 16), name=f"{size}.png", limits=LIMITS).shape

    threads = [threading.Thread(target=work, args=(sizes[start::4],)) for start in range(4)]
    pid = decoder.pid
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {size: (16, size, 3) for size in sizes}
    assert decoder.pid == pid


def test_a_forked_process_starts_its_own_helper_and_leaves_ours_alone(decoder):
    mine = decoder.pid
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            forgotten = decoder.pid is None
            assert_works(decoder)
            code = 0 if forgotten and decoder.pid != mine else 2
            decoder.close()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert_works(decoder)
    assert decoder.pid == mine


def test_an_interrupted_request_does_not_answer_the_next_one(decoder):
    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        os.kill(decoder.pid, signal.SIGSTOP)
        killer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
        killer.start()
        with pytest.raises(KeyboardInterrupt):
            decoder.decode(png(20, 20), name="late.png", limits=LIMITS)
        killer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert_works(decoder)


def test_closing_ends_the_process_and_the_next_image_starts_another(decoder):
    pid = decoder.pid
    decoder.close()
    assert decoder.pid is None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert_works(decoder)
    assert repr(decoder) == f"Decoder(process {decoder.pid}, at most 2048 MiB)"


def test_a_helper_that_cannot_start_says_why(monkeypatch, tmp_path):
    with Decoder() as decoder:
        monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
        with pytest.raises(AtlasError, match=r"could not start: .*No such file"):
            decoder.decode(GOOD, name="good.png", limits=LIMITS)
        monkeypatch.undo()
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        with pytest.raises(AtlasError, match="could not start: ModuleNotFoundError: No module named"):
            decoder.decode(GOOD, name="good.png", limits=LIMITS)
        monkeypatch.undo()
        assert_works(decoder)


@linux_only
def test_no_secret_of_the_environment_reaches_the_helper(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "do-not-tell")
    with Decoder() as decoder:
        assert_works(decoder)
        assert b"do-not-tell" not in Path(f"/proc/{decoder.pid}/environ").read_bytes()


@linux_only
def test_the_helper_dies_with_its_parent():
    program = (
        "import os, signal, sys; import numpy as np\n"
        "from atlas_engine.data.sandbox import shared_decoder\n"
        "from atlas_engine.data import read_image\n"
        f"read_image({GOOD!r}); print(shared_decoder().pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = run_python(program)
    assert done.returncode == -signal.SIGKILL
    status = Path(f"/proc/{int(done.stdout)}/stat")
    end = time.monotonic() + 20
    while is_alive(status) and time.monotonic() < end:
        time.sleep(0.02)
    assert not is_alive(status)


def test_an_orderly_exit_leaves_nothing_to_warn_of():
    done = run_python(
        f"from atlas_engine.data import read_image\nread_image({GOOD!r})\n", "-X", "dev", "-W", "error"
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_helpers_program_never_imports_torch():
    done = run_python("import sys, atlas_engine.data.sandbox_worker; print('torch' in sys.modules)")
    assert done.stdout.strip() == "False"


def test_read_image_uses_one_shared_helper():
    read_image(GOOD)
    pid = shared_decoder().pid
    assert pid is not None
    read_image(GOOD)
    assert shared_decoder().pid == pid


def run_python(program, *options):
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *options, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, env=variables, check=False, timeout=60)


def is_alive(status):
    # An orphan that nobody waits for stays as a zombie (Z), which is dead enough.
    try:
        return status.read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
