"""Checkpoints become a bank with exact differences, and an error leaves the old bank file unharmed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest
import torch
from safetensors.torch import save_file

from atlas_engine.bank import TaskVector, TaskVectorBank, load_bank, save_bank
from atlas_engine.bank.edit import join_banks
from atlas_engine.bank.storage import STORAGES
from atlas_engine.clip.backbone import Backbone, Preprocessing
from atlas_engine.clip.checkpoints.sources import find_sources
from atlas_engine.errors import BankError, ModelError
from atlas_engine.library import import_bank
from tests.bank import tuned
from tests.drawn import ROOT
from tests.pickled import save_pickled_encoder
from tests.tiny import tiny_bank, tiny_clip

ZERO = (0.0, 0.0, 0.0)


def backbone_of(visual, name="tiny") -> Backbone:
    return Backbone(
        name=name,
        visual=visual,
        preprocessing=Preprocessing(size=32, mean=ZERO, std=ZERO),
        logit_scale=100.0,
        dim=16,
        templates="kinds",
        device=torch.device("cpu"),
        encode_text=lambda sentences: torch.zeros(len(sentences), 16),
    )


@pytest.fixture
def backbone():
    return backbone_of(tuned.small_clip().visual)


@pytest.fixture
def folder(tmp_path):
    """Three fine-tuned towers of the base, each in a file of its own."""
    made = tmp_path / "tuned"
    made.mkdir()
    for vector in tuned.tuned_vectors():
        state = {f"visual.{n}": theta0 + vector.blocks[n] for n, theta0 in tuned.base_weights().items()}
        save_file(state, made / f"{vector.name}.safetensors")
    return made


def import_all(sources, backbone, path, **options):
    return list(import_bank(find_sources(sources), backbone, path, **options))


def test_a_folder_becomes_the_bank_of_its_differences(folder, backbone, tmp_path):
    imported = import_all([folder], backbone, tmp_path / "b.safetensors", storage="float32")
    bank = load_bank(tmp_path / "b.safetensors")
    assert bank.tasks == ("checks", "disks", "stripes")
    assert [one.layout for one in imported] == ["open_clip"] * 3
    for vector, one in zip(sorted(tuned.tuned_vectors(), key=lambda v: v.name), imported, strict=True):
        read = bank.vector(vector.name)
        assert all(torch.allclose(read.blocks[n], t, atol=1e-7) for n, t in vector.blocks.items())
        assert one.norm == pytest.approx(vector.norm(), rel=1e-4)  # θ0 + τ − θ0 rounds τ once
    assert bank.base == tuned.tuned_vectors()[0].base
    assert bank.infos[0].provenance == {"source": "checks.safetensors", "layout": "open_clip"}


@pytest.mark.parametrize("storage", STORAGES)
def test_vectors_joined_one_by_one_are_the_bank_made_at_once(storage):
    vectors = tuned.tuned_vectors()
    one_by_one = join_banks([TaskVectorBank.from_vectors([vector], storage=storage) for vector in vectors])
    at_once = TaskVectorBank.from_vectors(vectors, storage=storage)
    assert (one_by_one.tasks, one_by_one.fingerprint) == (at_once.tasks, at_once.fingerprint)
    for block in at_once.blocks:
        assert torch.allclose(one_by_one.vectors_of(block), at_once.vectors_of(block), atol=1e-6)


def test_only_banks_of_one_base_and_storage_are_joined(bank_pair):
    one, other = bank_pair
    with pytest.raises(BankError, match="taken from different bases"):
        join_banks([one, other])
    with pytest.raises(BankError, match="stored as float32, another as int8"):
        join_banks([one, one.stored_as("int8")])
    with pytest.raises(BankError, match="at least one task vector"):
        join_banks([])
    rest = one.without([one.tasks[0]])  # shares its panels with the whole bank
    whole = join_banks([one.select([one.tasks[0]]), rest])
    assert whole.tasks == one.tasks
    assert torch.equal(whole.vectors_of("proj"), one.vectors_of("proj"))


@pytest.fixture
def bank_pair():
    return TaskVectorBank.from_vectors(tuned.tuned_vectors()), tiny_bank(tiny_clip().visual)


def test_a_vision_model_without_projection_keeps_the_bases_own_and_says_so(tmp_path):
    import transformers
    from open_clip.transformer import QuickGELU, VisionTransformer

    torch.manual_seed(0)
    config = transformers.CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=32,
        patch_size=8,
    )
    ours = VisionTransformer(32, 8, 32, 1, 2, 4.0, output_dim=16, act_layer=QuickGELU).eval()
    path = tmp_path / "clip-vit-base-patch32_dtd"
    transformers.CLIPVisionModel(config).save_pretrained(path)
    (path / "README.md").write_text("- pre-trained: 0.44\n- fine-tuned: 0.97\n")
    (imported,) = import_all([path], backbone_of(ours), tmp_path / "b.safetensors", storage="float32")
    assert imported.note == "not in the checkpoint: the base's own, unchanged"
    bank = load_bank(tmp_path / "b.safetensors")
    vector = bank.vector("dtd")
    assert not vector.blocks["proj"].any()
    assert vector.blocks["conv1.weight"].any()
    assert (bank.infos[0].accuracy_before, bank.infos[0].accuracy_after) == (0.44, 0.97)
    with pytest.raises(
        BankError, match=r"tuned with quick_gelu, but tiny computes gelu: .* need a -quickgelu"
    ):
        import_all(
            [path],
            backbone_of(VisionTransformer(32, 8, 32, 1, 2, 4.0, output_dim=16)),
            tmp_path / "c.safetensors",
        )


def test_the_papers_pickled_encoders_become_vectors(tmp_path, backbone):
    pickle_folder = tmp_path / "ViT" / "CarsVal"
    pickle_folder.mkdir(parents=True)
    save_pickled_encoder(tuned.small_clip(), pickle_folder / "finetuned.pt")
    (imported,) = import_all([tmp_path / "ViT"], backbone, tmp_path / "b.safetensors")
    assert (imported.name, imported.norm) == ("Cars", 0.0)  # the checkpoint is the base itself


def test_bank_files_join_and_one_of_another_base_is_refused(tmp_path, folder, backbone, bank_pair):
    mine, other = bank_pair
    save_bank(mine.select(["disks"]), tmp_path / "mine.safetensors")
    sources = [tmp_path / "mine.safetensors", folder / "checks.safetensors"]
    imported = import_all(sources, backbone, tmp_path / "b.safetensors", storage="int8")
    assert [(one.name, one.layout) for one in imported] == [("disks", "bank"), ("checks", "open_clip")]
    assert load_bank(tmp_path / "b.safetensors").infos[0] == mine.select(["disks"]).infos[0]
    save_bank(other, tmp_path / "other.safetensors")
    with pytest.raises(BankError, match=r"other\.safetensors has vectors of another base .* than tiny"):
        import_all([tmp_path / "other.safetensors"], backbone, tmp_path / "b.safetensors")


# Whatever goes wrong, the old bank file stays.


@pytest.fixture
def old_bank(tmp_path, backbone, folder):
    """A bank file that is already there, and its bytes."""
    path = tmp_path / "bank" / "b.safetensors"
    path.parent.mkdir()
    import_all([folder / "disks.safetensors"], backbone, path)
    return path, path.read_bytes()


def is_unharmed(old_bank) -> bool:
    path, before = old_bank
    return path.read_bytes() == before and [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_checkpoint_of_another_base_leaves_the_old_bank(old_bank, folder, backbone):
    save_file({n: t.clone() for n, t in tiny_clip().visual.state_dict().items()}, folder / "z.safetensors")
    with pytest.raises(ModelError, match=r"z\.safetensors does not fit the model: .* needs .*width 192"):
        import_all([folder], backbone, old_bank[0])
    assert is_unharmed(old_bank)


def test_a_checkpoint_with_nan_leaves_the_old_bank(old_bank, folder, backbone):
    state = {n: t.clone() for n, t in tuned.base_weights().items()}
    state["proj"][0, 0] = torch.nan
    save_file(state, folder / "z.safetensors")
    with pytest.raises(BankError, match="checkpoint 'z' holds NaN or infinity in proj"):
        import_all([folder], backbone, old_bank[0])
    assert is_unharmed(old_bank)


def test_a_truncated_checkpoint_leaves_the_old_bank(old_bank, folder, backbone):
    data = (folder / "stripes.safetensors").read_bytes()
    (folder / "stripes.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match=r"stripes\.safetensors is damaged or no safetensors file"):
        import_all([folder], backbone, old_bank[0])
    assert is_unharmed(old_bank)


def test_an_import_that_is_stopped_half_way_leaves_the_old_bank(old_bank, folder, backbone):
    vectors = import_bank(find_sources([folder]), backbone, old_bank[0])
    next(vectors)
    vectors.close()
    assert is_unharmed(old_bank)


def test_a_full_disk_leaves_the_old_bank(old_bank, folder, backbone):
    resource = pytest.importorskip("resource", reason="needs a limit on file size")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(
            BankError, match=r"cannot write b\.safetensors: .* What was there before is unharmed"
        ):
            import_all([folder], backbone, old_bank[0])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert is_unharmed(old_bank)


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs a limit on file size")
def test_a_kill_in_the_middle_of_the_save_leaves_the_old_bank(old_bank, bank_pair):
    """The kernel ends the process, with no chance to clean up, when it has written 100,000 bytes."""
    path, before = old_bank
    source = path.with_name("source.safetensors")
    save_bank(bank_pair[0], source)
    code = f"""
        import resource, signal
        from atlas_engine.bank import load_bank, save_bank
        bank = load_bank({str(source)!r})
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        save_bank(bank, {str(path)!r})
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], check=False, env=environment, timeout=300
    )
    assert source.stat().st_size > 100_000
    assert process.returncode == -signal.SIGXFSZ
    assert path.read_bytes() == before
    assert load_bank(path).tasks == ("disks",)


def test_too_little_memory_is_refused_before_anything_is_read(backbone, tmp_path, monkeypatch):
    from atlas_engine import library
    from atlas_engine.runtime import MemoryReport

    monkeypatch.setattr(library, "memory_report", lambda: MemoryReport(None, None, None, 10_000_000))
    sources = [f"{n}=owner/name" for n in range(20)]
    with pytest.raises(BankError, match=r"20 vectors as float16 need .* MiB of memory and 9\.5 MiB are free"):
        import_all(sources, backbone, tmp_path / "b.safetensors")


def test_a_bank_has_the_same_fingerprint_in_every_storage(folder, backbone, tmp_path):
    import_all([folder], backbone, tmp_path / "half.safetensors")
    import_all([folder], backbone, tmp_path / "byte.safetensors", storage="int8")
    half, byte = load_bank(tmp_path / "half.safetensors"), load_bank(tmp_path / "byte.safetensors")
    assert half.fingerprint == byte.fingerprint
    assert isinstance(half.vector("disks"), TaskVector)


def test_checkpoints_are_of_the_kind_that_the_user_says(folder, backbone, tmp_path):
    path = tmp_path / "b.safetensors"
    import_all([folder], backbone, path, storage="float32", kind="linear")
    assert load_bank(path).kind == "linear"
    with pytest.raises(BankError, match=r"is a linear vector but .* is a standard one"):
        import_all([path, f"more={folder / 'checks.safetensors'}"], backbone, path)
    assert load_bank(path).kind == "linear", "the old file stays"
    import_all([folder], backbone, path)
    assert load_bank(path).kind == "standard"
    with pytest.raises(BankError, match="kind of vector 'tangent' is not known"):
        import_all([folder], backbone, path, kind="tangent")
