"""Weights files made by an attacker: nothing in them runs, memory is bounded, and all are refused clearly."""

from __future__ import annotations

import builtins
import gc
import io
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from atlas_engine.clip.checkpoints.torchfile import TorchFile
from atlas_engine.clip.checkpoints.tower import read_tower
from atlas_engine.errors import ModelError

resource = pytest.importorskip("resource", reason="needs a limit on memory")
SHAPES = {"proj": (2, 2)}


def asks_to_call(function, *arguments):
    """An object whose pickle asks for a call."""

    class Trap:
        def __reduce__(self):
            return function, arguments

    return Trap()


def save_zip(path, pickled: bytes, *, storages: dict[str, bytes] | None = None, method=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("w/data.pkl", pickled)
        for key, data in (storages or {}).items():
            archive.writestr(f"w/data/{key}", data)
    return path


def save_legacy(path, pickled: bytes):
    """The older layout with `pickled` in the place of the object."""
    head = [0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}]
    parts = [*(pickle.dumps(item, protocol=2) for item in head), pickled, pickle.dumps([], protocol=2)]
    path.write_bytes(b"".join(parts))
    return path


def pickled_tensor(numel=4, *, shape=(2, 2), stride=(2, 1), offset=0) -> bytes:
    """The pickle of {"proj": tensor} with any sizes in it, true or not."""

    class Out(pickle.Pickler):
        def persistent_id(self, obj):
            return ("storage", torch.FloatStorage, "0", "cpu", numel) if obj is Out else None

    buffer = io.BytesIO()
    rebuilt = asks_to_call(torch._utils._rebuild_tensor_v2, Out, offset, shape, stride, False, {})
    Out(buffer, protocol=2).dump({"proj": rebuilt})
    return buffer.getvalue()


def test_the_files_that_these_tests_write_can_be_read_if_nothing_is_wrong(tmp_path):
    data = struct.pack("<4f", 1, 2, 3, 4)
    path = save_zip(tmp_path / "w.pt", pickled_tensor(), storages={"0": data})
    assert read_tower(path, shapes=SHAPES).weights["proj"].tolist() == [[1, 2], [3, 4]]
    with TorchFile(save_legacy(tmp_path / "l.pt", pickle.dumps({"a": [1]}, protocol=2))) as file:
        assert file.shapes == {}


# Calls.


@pytest.mark.parametrize("save", [save_zip, save_legacy])
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize(
    "trap",
    [
        lambda marker: asks_to_call(os.system, f"touch {marker}"),
        lambda marker: asks_to_call(builtins.eval, f"open({str(marker)!r}, 'w')"),
        lambda marker: asks_to_call(builtins.exec, f"open({str(marker)!r}, 'w')"),
        lambda marker: asks_to_call(builtins.open, str(marker), "w"),
        lambda marker: asks_to_call(marker.touch),
        lambda marker: asks_to_call(subprocess.Popen, ["touch", str(marker)]),
        lambda marker: asks_to_call(torch.load, str(marker)),
        lambda marker: asks_to_call(builtins.__import__, "antigravity"),
        lambda marker: asks_to_call(pickle.loads, pickle.dumps(asks_to_call(os.system, f"touch {marker}"))),
        lambda marker: asks_to_call(map, asks_to_call(os.system, f"touch {marker}"), [1]),
        lambda marker: {
            "state_dict": {"proj": torch.ones(1).tolist(), "x": [asks_to_call(os.mkdir, str(marker))]}
        },
    ],
    ids=[
        "system",
        "eval",
        "exec",
        "open",
        "method",
        "Popen",
        "torch.load",
        "import",
        "nested",
        "map",
        "deep",
    ],
)
def test_a_call_is_refused_and_does_not_happen(tmp_path, trap, protocol, save):
    marker = tmp_path / "ran"
    path = save(tmp_path / "w.pt", pickle.dumps(trap(marker), protocol=protocol))
    with pytest.raises(ModelError, match=r"^w\.pt asks to call .*; none of it was run\."):
        read_tower(path, shapes=SHAPES)
    assert not marker.exists()
    assert "antigravity" not in sys.modules


def test_the_error_names_the_call(tmp_path):
    path = save_zip(tmp_path / "w.pt", pickle.dumps(asks_to_call(os.system, "true"), protocol=2))
    with pytest.raises(ModelError, match=r"asks to call posix\.system, which weights do not need"):
        read_tower(path, shapes=SHAPES)


@pytest.mark.parametrize(
    "pickled",
    [
        b"(S'touch ran'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'touch ran'\no.",  # OBJ
        b"\x80\x02cos\nsystem\nU\ttouch ran\x85\x81.",  # NEWOBJ
        b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\ttouch ran\x85}\x92.",  # STACK_GLOBAL, NEWOBJ_EX
        b"\x80\x02cos\nsystem\n)\x81}U\x01aU\x01bsb0cos\nsystem\nU\ttouch ran\x85R.",  # BUILD, POP, REDUCE
        b"\x80\x02\x82\x01.",  # EXT1
        b"\x80\x05\x97.",  # NEXT_BUFFER
        b"Pname\n.",  # PERSID
        b"cos\nsystem\n(S'true'\ntR",  # no end
        b"\x80\x02U\x02osU\x06system\x85R.",  # calls text
    ],
    ids=["INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "BUILD", "EXT1", "BUFFER", "PERSID", "no end", "text"],
)
def test_every_other_opcode_that_calls_is_refused(tmp_path, monkeypatch, pickled):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"asks to call os\.system|is damaged or no torch file"):
        TorchFile(save_zip(tmp_path / "w.pt", pickled))
    assert not (tmp_path / "ran").exists()


def test_the_class_of_a_pickled_object_is_not_imported(tmp_path):
    pickled = b"\x80\x02cantigravity\nFlyer\n)\x81}U\x0b_parameters}sb."
    with TorchFile(save_zip(tmp_path / "w.pt", pickled)) as file:
        assert file.shapes == {}
    assert "antigravity" not in sys.modules


# Sizes.


@pytest.mark.parametrize(
    "pickled",
    [
        pickled_tensor(2**50, shape=(2**25, 2**25), stride=(2**25, 1)),
        pickled_tensor(4, shape=(2**30, 2**30), stride=(0, 0)),
        pickled_tensor(4, shape=(2, 2), stride=(2, 1), offset=1),
        pickled_tensor(4, shape=(2, -2), stride=(2, 1)),
        pickled_tensor(4, shape=(2, 2), stride=(2**60, 1)),
        pickled_tensor(4, shape=(2, 2.0), stride=(2, 1)),
        pickled_tensor(-4),
        pickled_tensor(4.5),
    ],
    ids=["huge", "expanded", "past the end", "negative", "far stride", "fraction", "none", "half a number"],
)
def test_a_tensor_that_lies_about_its_size_is_refused(tmp_path, pickled):
    path = save_zip(tmp_path / "w.pt", pickled, storages={"0": bytes(16)})
    with memory_limit(), pytest.raises(ModelError, match=r"damaged or no torch file|does not fit the model"):
        read_tower(path, shapes=SHAPES)


@pytest.mark.parametrize("save", [save_zip, save_legacy])
@pytest.mark.parametrize(
    "pickled",
    [
        b"\x80\x02]r\xff\xff\xff\x7f.",  # LONG_BINPUT far away: Python's own unpickler makes a table of 2³¹
        b"\x80\x04\x8e\x00\x00\x00\x00\x00\x01\x00\x00.",  # BINBYTES8 of 1 TiB
        b"\x80\x05\x96\x00\x00\x00\x00\x00\x01\x00\x00.",  # BYTEARRAY8 of 1 TiB
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f]",  # FRAME
        b"L" + b"9" * 100_000 + b"L\n.",
        b"\x80\x02" + b")" + b"\x85" * 200_000 + b"}" + b"\x86.",  # a tuple in a tuple in a tuple …
        b"\x80\x02}" + b")" + b"\x85" * 200_000 + b"]s.",  # … as a key
    ],
    ids=["memo", "bytes", "bytearray", "frame", "digits", "nest", "nested key"],
)
def test_a_small_file_cannot_ask_for_much_memory(tmp_path, pickled, save):
    with memory_limit():
        try:
            TorchFile(save(tmp_path / "w.pt", pickled)).close()
        except ModelError as error:
            assert "damaged or no torch file" in str(error)  # noqa: PT017 - both outcomes are fine


def test_a_structure_that_multiplies_itself_is_refused(tmp_path):
    """Each list holds the one before it twice: 2⁴⁰ paths in a few hundred bytes."""
    doubled = (b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(40))
    pickled = b"\x80\x02]q\x00" + b"".join(doubled) + b"."
    with memory_limit(), pytest.raises(ModelError, match="names too many things"):
        TorchFile(save_zip(tmp_path / "w.pt", pickled))


def test_reading_a_structure_that_contains_itself_ends(tmp_path):
    with TorchFile(save_zip(tmp_path / "w.pt", b"\x80\x02}q\x00U\x01ah\x00s.")) as file:
        assert file.shapes == {}


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = save_zip(
        tmp_path / "w.pt", pickled_tensor(2**23), storages={"0": bytes(2**25)}, method=zipfile.ZIP_DEFLATED
    )
    assert path.stat().st_size < 2**18
    with memory_limit(), pytest.raises(ModelError, match="its entries are compressed"):
        read_tower(path, shapes=SHAPES)


def test_entries_that_claim_more_than_the_file_holds_are_refused(tmp_path):
    path = save_zip(tmp_path / "w.pt", pickled_tensor(2**29), storages={"0": bytes(16)})
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    data[entry + 20 : entry + 28] = struct.pack("<II", 2**31, 2**31)
    path.write_bytes(data)
    with memory_limit(), pytest.raises(ModelError, match="its entries are larger than the file"):
        read_tower(path, shapes=SHAPES)


def test_a_zip_of_something_else_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:
        archive.writestr("photo.jpg", b"jpeg")
    with pytest.raises(ModelError, match="it is a zip of something else"):
        TorchFile(tmp_path / "w.pt")


def test_a_torchscript_program_is_not_run_and_its_code_is_not_unpacked(tmp_path):
    module = b"\x80\x02c__torch__\nEncoder\n)\x81" + pickled_tensor().removeprefix(b"\x80\x02")[:-1] + b"b."
    path = save_zip(tmp_path / "w.pt", module, storages={"0": bytes(16)})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("w/code/__torch__.py", b"while True: pass\n" * 2**21)
    with memory_limit(), TorchFile(path) as file:
        assert dict(file.shapes) == {"proj": (2, 2)}
        assert file.class_names == {"__torch__.Encoder"}
        assert not file.read("proj").any()


@pytest.mark.parametrize("content", [b"", b"\x80", b"PK\x03\x04", b"GIF89a", b"\x00" * 100, b"\x80\x02N."])
def test_a_file_of_another_kind_is_refused_in_one_sentence(tmp_path, content):
    (tmp_path / "w.pt").write_bytes(content)
    with pytest.raises(
        ModelError, match=r"^w\.pt is damaged or no torch file: .+\. Fetch or save it again\.$"
    ):
        TorchFile(tmp_path / "w.pt")


class memory_limit:  # noqa: N801 - a context manager
    """Inside it, this process may allocate at most 512 MiB more than it holds.

    The collector of cycles rests meanwhile. The 200,000 objects of one file would start it, it would finalise
    what earlier tests left behind, and pytest would blame this test for a socket that another never closed.
    """

    def __enter__(self):
        self.before = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        taken = pages * resource.getpagesize()
        self.collects = gc.isenabled()
        gc.disable()
        resource.setrlimit(resource.RLIMIT_AS, (taken + 2**29, self.before[1]))

    def __exit__(self, *exception):
        resource.setrlimit(resource.RLIMIT_AS, self.before)
        if self.collects:
            gc.enable()
