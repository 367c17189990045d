"""A stranger who has taken over the decoding helper reads no secret, opens no file, reaches no network."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from atlas_engine.cache import Cache
from atlas_engine.data import ImageLimits, sandbox
from atlas_engine.data.confinement import Confinement, hide_process
from atlas_engine.data.sandbox import Decoder
from atlas_engine.errors import ImageError
from tests.drawn import ROOT

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="Linux confines processes")

PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
SIBLINGS_CLOSED = PTRACE_SCOPE.exists() and PTRACE_SCOPE.read_text().strip() != "0"  # as on Ubuntu
SECRET = b"the-parent-knows-this-word"
TAKEN_OVER = Path(__file__).with_name("taken_over.py")
BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tests.hostile.taken_over import main; main(int(sys.argv[2]), {layers})"
)


@contextlib.contextmanager
def taken_over(monkeypatch, layers=None):
    """A function that sends an attack to a helper in a stranger's hands, and gives its answer."""
    monkeypatch.setattr(sandbox, "_BOOT", BOOT.format(layers=layers))
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    with Decoder() as decoder:

        def attack(*what, limits=ImageLimits()):  # noqa: B008 - frozen
            with pytest.raises(ImageError) as caught:
                decoder.decode(json.dumps(what).encode(), name="attack", limits=limits)
            return json.loads(str(caught.value))

        attack.decoder = decoder
        yield attack


@pytest.fixture(scope="module")
def helper():
    with pytest.MonkeyPatch.context() as monkeypatch, taken_over(monkeypatch) as attack:
        if not attack.decoder.confinement.sealed:
            pytest.skip(f"this kernel offers too little: {attack.decoder.confinement}")
        yield attack


@pytest.fixture
def listeners(tmp_path):
    """Sockets that note who connects, as the arguments of `connect`."""
    with contextlib.ExitStack() as stack:
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        named, abstract = (
            stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in range(2)
        )
        named.bind(str(tmp_path / "socket"))
        abstract.bind(f"\0atlas-test-{os.getpid()}")
        for unix in (named, abstract):
            unix.listen()
        yield {
            "TCP": (tcp, "SOCK_STREAM", "AF_INET", tcp.getsockname()),
            "UDP": (udp, "SOCK_DGRAM", "AF_INET", udp.getsockname()),
            "Unix": (named, "SOCK_STREAM", "AF_UNIX", str(tmp_path / "socket")),
            "abstract": (abstract, "SOCK_STREAM", "AF_UNIX", f"\0atlas-test-{os.getpid()}"),
        }


def is_reached(listener):
    listener.settimeout(0.05)
    try:
        listener.recv(1) if listener.type == socket.SOCK_DGRAM else listener.accept()[0].close()
    except TimeoutError:
        return False
    return True


def attack_freely(*what):
    """The answer of the same attack in a process of this user that has given up nothing."""
    command = [sys.executable, str(TAKEN_OVER), json.dumps(what)]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables, timeout=60)
    return json.loads(done.stdout)


def test_the_attacks_are_real(listeners, tmp_path):
    (tmp_path / "diary").write_text("dear diary")
    assert attack_freely("read_file", str(tmp_path / "diary")) == {"got": "dear diary"}
    assert attack_freely("write_file", str(tmp_path / "note")) == {"got": "written"}
    assert attack_freely("run_program") == {"got": "ran\n"}
    assert attack_freely("fork") == {"got": "forked"}
    assert attack_freely("run_machine_code") == {"got": "mapped"}
    assert attack_freely("send_signal", os.getpid()) == {"got": "sent"}
    for listener, *arguments in listeners.values():
        assert attack_freely("connect", *arguments) == {"got": "sent"}
        assert is_reached(listener)


def test_a_process_that_is_not_hidden_can_be_read_by_others_of_its_user():
    program = (
        "import ctypes; s = ctypes.create_string_buffer(b'open secret'); print(ctypes.addressof(s)); input()"
    )
    command = [sys.executable, "-u", "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env={"TOKEN": "x1"}, **pipes) as victim:
        address = int(victim.stdout.readline())
        assert "TOKEN=x1" in attack_freely("read_file", f"/proc/{victim.pid}/environ")["got"]
        if not SIBLINGS_CLOSED:
            assert attack_freely("read_memory_by_proc", victim.pid, address, 11) == {"got": "open secret"}
            assert attack_freely("read_memory_by_call", victim.pid, address, 11) == {"got": "open secret"}
        victim.communicate(b"\n")


def test_the_parents_environment_and_memory_cannot_be_read(helper):
    secret = ctypes.create_string_buffer(SECRET)
    parent, where = os.getpid(), (ctypes.addressof(secret), len(SECRET))
    for what in (
        ("read_file", f"/proc/{parent}/environ"),
        ("read_file", f"/proc/{parent}/maps"),
        ("read_file", f"/proc/{parent}/cmdline"),
        ("read_memory_by_proc", parent, *where),
        ("read_memory_by_call", parent, *where),
        ("attach", parent),
        ("send_signal", parent),
    ):
        assert list(helper(*what)) == ["refused"], what


def test_the_helper_inherits_no_variable_and_no_open_file(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "do-not-tell")
    kept_open = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(kept_open, True)
    try:
        with taken_over(monkeypatch, {"seccomp": False}) as attack:  # fstat is refused under seccomp
            assert "do-not-tell" not in attack("list_variables")["got"].values()
            assert set(attack("list_open_files")["got"].values()) <= {"0x1", "0o1", "0o2"}
    finally:
        os.close(kept_open)


def test_no_file_can_be_read_or_written(helper, tmp_path):
    with Cache(tmp_path / "cache") as cache:
        cache.put_bytes("key", b"value")
    for path in (tmp_path / "cache" / "cache.db", "/etc/passwd", __file__, "/proc/self/environ", "/dev/zero"):
        assert list(helper("read_file", str(path))) == ["refused"], path
    assert list(helper("write_file", str(tmp_path / "note"))) == ["refused"]
    assert not (tmp_path / "note").exists()
    assert list(helper("import_module", "antigravity")) == ["refused"]


def test_nothing_can_be_reached_over_a_network_or_a_socket(helper, listeners):
    for name, (listener, *arguments) in listeners.items():
        assert list(helper("connect", *arguments)) == ["refused"], name
        assert not is_reached(listener), name


def test_no_program_process_or_machine_code_can_be_started_and_no_limit_lifted(helper):
    for attack in ("run_program", "fork", "run_machine_code", "lift_limit"):
        assert list(helper(attack)) == ["refused"], attack


@pytest.mark.parametrize("layer", ["landlock", "seccomp"])
def test_each_layer_alone_keeps_files_the_parent_and_tcp_out_of_reach(monkeypatch, layer, listeners):
    other = {"landlock": "seccomp", "seccomp": "landlock"}[layer]
    with taken_over(monkeypatch, {other: False}) as attack:
        found = attack.decoder.confinement
        if not getattr(found, layer) or not found.sealed:
            pytest.skip(f"this kernel does not offer {layer}")
        assert not getattr(found, other)
        listener, *arguments = listeners["TCP"]
        for what in (
            ("read_file", __file__),
            ("read_file", f"/proc/{os.getpid()}/environ"),
            ("read_memory_by_call", os.getpid(), id(attack), 8),
            ("attach", os.getpid()),
            ("run_program",),
            ("connect", *arguments),
        ):
            assert list(attack(*what)) == ["refused"], what
        assert not is_reached(listener)


def test_without_either_layer_the_parent_is_still_closed(monkeypatch):
    secret = ctypes.create_string_buffer(SECRET)
    with taken_over(monkeypatch, {"landlock": False, "seccomp": False}) as attack:
        assert not attack.decoder.confinement.sealed
        assert list(attack("read_file", f"/proc/{os.getpid()}/environ")) == ["refused"]
        where = (ctypes.addressof(secret), len(SECRET))
        assert list(attack("read_memory_by_proc", os.getpid(), *where)) == ["refused"]
        assert list(attack("read_memory_by_call", os.getpid(), *where)) == ["refused"]


def test_a_helper_that_switches_its_alarms_off_and_computes_is_ended_by_the_kernel(monkeypatch):
    with taken_over(monkeypatch) as attack:
        if not attack.decoder.confinement.seccomp:
            pytest.skip(
                "without seccomp a stranger can ignore the signal; the parent's clock ends the helper"
            )
        request = json.dumps(["compute", 60]).encode()
        limits = ImageLimits(seconds=60, cpu_seconds=0.1)  # the parent allows two seconds more
        began = time.monotonic()
        with pytest.raises(ImageError, match=r"^attack: takes more than 0\.1 s of computing"):
            attack.decoder.decode(request, name="attack", limits=limits)
        assert time.monotonic() - began < 40  # three seconds of computing on a busy machine


def test_a_process_can_be_hidden_and_says_so():
    program = (
        "from atlas_engine.data.confinement import hide_process\n"
        "import ctypes\n"
        "print(hide_process(), ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))\n"  # PR_GET_DUMPABLE
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "0"]
    assert hide_process()


def test_a_confinement_says_what_it_holds():
    assert str(Confinement()) == "none"
    assert not Confinement(landlock=3, limits=True).sealed
    assert Confinement(landlock=4).sealed
    full = Confinement(landlock=7, seccomp=True, no_new_privileges=True, capabilities=True, limits=True)
    assert str(full) == ("seccomp, Landlock 7, no new privileges, no capabilities, no new files or processes")
