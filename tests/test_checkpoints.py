"""The checkpoint inventory: real files of each format, whole, cut, half written and hostile."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import struct
import zipfile
from pathlib import Path

import pytest

from check_failed_run.sources import checkpoints
from check_failed_run.sources.checkpoints import inventory, step_of

h5py = pytest.importorskip("h5py")
safetensors_numpy = pytest.importorskip("safetensors.numpy")
numpy = pytest.importorskip("numpy")


def tensors(path: Path, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = numpy.random.default_rng(seed)
    safetensors_numpy.save_file({"w": values.random((16, 16)), "b": values.random(16)}, path)
    return path


def torch_zip(path: Path, *, seed: int = 0, pad: int = 5000) -> Path:
    """The layout of torch.save since 1.6: a zip archive of stored members under one folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({"step": 3}, protocol=2))
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/data/0", random.Random(seed).randbytes(pad))
        archive.writestr("archive/version", "3\n")
    return path


def cut(path: Path, share: float = 0.6) -> Path:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


def hf(root: Path, step: int, *, optimizer: bool = True) -> Path:
    folder = root / f"checkpoint-{step}"
    tensors(folder / "model.safetensors", step)
    (folder / "config.json").write_text('{"model_type": "bert"}')
    if optimizer:
        torch_zip(folder / "optimizer.pt")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": []}))
    return folder


def states(root: Path) -> dict[str, str]:
    return {os.path.relpath(c.path, root): c.state for c in inventory(root)}


def only(root: Path):
    found = inventory(root)
    assert len(found) == 1, found
    return found[0]


# --- Hugging Face


def test_hugging_face_newest_last(tmp_path):
    for step in (1000, 500, 1500):
        hf(tmp_path, step)
    cut(tmp_path / "checkpoint-1500" / "model.safetensors")
    found = inventory(tmp_path)
    assert [(c.step, c.state, c.format) for c in found] == [(500, "complete", "huggingface"), (1000, "complete", "huggingface"), (1500, "corrupt", "huggingface")]
    assert found[2].reason.startswith("model.safetensors: cut: ")
    assert found[0].bytes == sum(f.stat().st_size for f in (tmp_path / "checkpoint-500").iterdir())
    assert found[0].time == max(f.stat().st_mtime for f in (tmp_path / "checkpoint-500").iterdir())


def test_hugging_face_step_is_that_of_the_state(tmp_path):
    folder = hf(tmp_path, 500)
    (folder / "trainer_state.json").write_text('{"global_step": 512}')
    assert only(tmp_path).step == 512


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("trainer_state.json", "partial", "no trainer_state.json, which is written last"),
        ("model.safetensors", "partial", "holds no weights"),
        ("optimizer.pt", "complete", "no optimizer state: training would go on with a new optimizer"),
    ],
)
def test_hugging_face_without_a_file(tmp_path, name, state, reason):
    (hf(tmp_path, 10) / name).unlink()
    assert (only(tmp_path).state, only(tmp_path).reason) == (state, reason)


def test_hugging_face_shards(tmp_path):
    folder = hf(tmp_path, 10)
    (folder / "model.safetensors").unlink()
    names = [f"model-{n:05d}-of-00003.safetensors" for n in (1, 2, 3)]
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {f"w{n}": name for n, name in enumerate(names)}}))
    for n, name in enumerate(names[:2]):
        tensors(folder / name, n)
    assert only(tmp_path).reason == f"1 of 3 shards that model.safetensors.index.json names are missing: {names[2]}"
    (folder / "model.safetensors.index.json").unlink()
    assert only(tmp_path).reason == "2 of 3 shards of model.safetensors are there"
    tensors(folder / names[2])
    assert only(tmp_path).state == "complete"


def test_hugging_face_temporary_and_empty(tmp_path):
    hf(tmp_path, 10).rename(tmp_path / "tmp-checkpoint-10")
    (tmp_path / "checkpoint-20").mkdir()
    assert states(tmp_path) == {"tmp-checkpoint-10": "partial", "checkpoint-20": "partial"}


def test_hugging_face_with_deepspeed_inside(tmp_path):
    folder = hf(tmp_path, 10, optimizer=False)
    (folder / "model.safetensors").unlink()
    deepspeed(folder, 10, ranks=2)
    assert [(c.format, c.state, c.reason) for c in inventory(tmp_path)] == [("huggingface", "complete", None)]
    (folder / "global_step10" / "zero_pp_rank_0_mp_rank_00_optim_states.pt").unlink()
    assert only(tmp_path).state == "partial"


def test_export_beside_checkpoints(tmp_path):
    hf(tmp_path, 10)
    tensors(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{}")
    assert states(tmp_path) == {".": "complete", "checkpoint-10": "complete"}


# --- DeepSpeed, DCP, Megatron


def deepspeed(root: Path, step: int, *, ranks: int) -> Path:
    folder = root / f"global_step{step}"
    torch_zip(folder / "mp_rank_00_model_states.pt")
    for rank in range(ranks):
        torch_zip(folder / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
    (root / "latest").write_text(folder.name)
    return folder


def test_deepspeed(tmp_path):
    deepspeed(tmp_path, 100, ranks=4)
    folder = deepspeed(tmp_path, 200, ranks=4)
    assert [(c.step, c.state) for c in inventory(tmp_path)] == [(100, "complete"), (200, "complete")]
    (folder / "zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert inventory(tmp_path)[1].reason == "optim_states shards missing: zero_pp_rank_1_mp_rank_00"
    assert inventory(tmp_path)[1].state == "partial"


def test_deepspeed_last_shard_is_missed_by_comparison(tmp_path):
    deepspeed(tmp_path, 100, ranks=4)
    folder = deepspeed(tmp_path, 200, ranks=4)
    (folder / "zero_pp_rank_3_mp_rank_00_optim_states.pt").unlink()
    newest = inventory(tmp_path)[1]
    assert (newest.state, newest.reason) == ("partial", "4 shards; the earlier checkpoints have 5")


def test_deepspeed_latest(tmp_path):
    deepspeed(tmp_path, 200, ranks=1)
    deepspeed(tmp_path, 100, ranks=1)  # latest names this one: the save of 200 did not finish
    assert states(tmp_path) == {"global_step100": "complete", "global_step200": "partial"}
    (tmp_path / "latest").write_text("global_step300")
    assert states(tmp_path)["global_step300"] == "partial"
    for hostile in ("../../../etc", "/etc/passwd", "..", "a\x1b[2Jb", "x" * 5000, ""):
        (tmp_path / "latest").write_text(hostile)
        assert states(tmp_path) == {"global_step100": "complete", "global_step200": "complete"}


def test_deepspeed_shard_is_cut(tmp_path):
    cut(deepspeed(tmp_path, 1, ranks=2) / "zero_pp_rank_1_mp_rank_00_optim_states.pt")
    assert (only(tmp_path).state, only(tmp_path).reason) == ("corrupt", "zero_pp_rank_1_mp_rank_00_optim_states.pt: cut: no central directory at its end")


def dcp(folder: Path, ranks: int) -> Path:
    folder.mkdir(parents=True)
    names = [f"__{rank}_0.distcp" for rank in range(ranks)]
    for name in names:
        (folder / name).write_bytes(b"x" * 100)
    (folder / ".metadata").write_bytes(pickle.dumps({n: ("storage", name) for n, name in enumerate(names)}))
    return folder


def test_dcp(tmp_path):
    folder = dcp(tmp_path / "step-50", 3)
    assert (only(tmp_path).format, only(tmp_path).step, only(tmp_path).state) == ("dcp", 50, "complete")
    (folder / "__2_0.distcp").write_bytes(b"")
    assert only(tmp_path).state == "corrupt"
    (folder / "__2_0.distcp").unlink()
    assert only(tmp_path).reason == "1 of 3 shard files that .metadata names are missing: __2_0.distcp"
    cut(folder / ".metadata", 0.99)
    (folder / "__2_0.distcp").write_bytes(b"x")
    assert only(tmp_path).state == "corrupt"
    (folder / ".metadata").unlink()
    assert only(tmp_path).reason == "no .metadata, which is written last (3 shard files are there)"


def test_megatron(tmp_path):
    for step in (1000, 2000):
        for tensor in (0, 1):
            torch_zip(tmp_path / f"iter_{step:07d}" / f"mp_rank_{tensor:02d}" / "model_optim_rng.pt")
    tracker = tmp_path / "latest_checkpointed_iteration.txt"
    tracker.write_text("2000")
    assert [(c.format, c.step, c.state) for c in inventory(tmp_path)] == [("megatron", 1000, "complete"), ("megatron", 2000, "complete")]
    tracker.write_text("1000")
    assert inventory(tmp_path)[1].reason == "latest_checkpointed_iteration.txt, which is written last, still names iter_0001000"
    (tmp_path / "iter_0002000" / "mp_rank_00" / "model_optim_rng.pt").unlink()
    assert inventory(tmp_path)[1].reason == "mp_rank_00 holds no .pt file"


def test_megatron_torch_dist(tmp_path):
    folder = dcp(tmp_path / "iter_0000300", 2)
    assert only(tmp_path).reason == "common.pt is missing"
    torch_zip(folder / "common.pt")
    assert (only(tmp_path).format, only(tmp_path).state, only(tmp_path).step) == ("megatron", "complete", 300)


# --- Orbax, TensorFlow, Keras


def orbax(root: Path, name: str, *, commit: int | None = 1700000000) -> Path:
    folder = root / name
    (folder / "default" / "d").mkdir(parents=True)
    (folder / "_CHECKPOINT_METADATA").write_text(json.dumps({"init_timestamp_nsecs": 1, "commit_timestamp_nsecs": commit}))
    (folder / "default" / "_METADATA").write_text('{"tree_metadata": {}}')
    (folder / "default" / "manifest.ocdbt").write_bytes(b"\x0c\xdb\x14\x5f")
    (folder / "default" / "d" / "abc").write_bytes(b"x")
    return folder


def test_orbax(tmp_path):
    orbax(tmp_path, "100")
    orbax(tmp_path, "200", commit=None)
    orbax(tmp_path, "300.orbax-checkpoint-tmp-1700000001")
    whole = orbax(tmp_path, "400")
    assert [(c.format, c.step, c.state) for c in inventory(tmp_path)] == [
        ("orbax", 100, "complete"), ("orbax", 200, "partial"), ("orbax", 300, "partial"), ("orbax", 400, "complete"),
    ]  # fmt: skip
    (whole / "default" / "_METADATA").write_text('{"tree_meta')
    assert inventory(tmp_path)[3].reason == "default/_METADATA is no JSON object"


def tf_checkpoint(root: Path, prefix: str, shards: int = 2) -> None:
    root.mkdir(parents=True, exist_ok=True)
    (root / f"{prefix}.index").write_bytes(b"\0" * 7 + b"table" * 20 + struct.pack("<Q", 0xDB4775248B80FB57))
    for n in range(shards):
        (root / f"{prefix}.data-{n:05d}-of-{shards:05d}").write_bytes(b"x" * 50)


def test_tensorflow(tmp_path):
    for step in (5, 10):
        tf_checkpoint(tmp_path, f"ckpt-{step}")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-10"\nall_model_checkpoint_paths: "ckpt-5"\n')
    assert [(c.format, c.step, c.state) for c in inventory(tmp_path)] == [("tensorflow", 5, "complete"), ("tensorflow", 10, "complete")]
    (tmp_path / "ckpt-10.data-00001-of-00002").unlink()
    assert inventory(tmp_path)[1].reason == "1 of 2 data shards are there"
    cut(tmp_path / "ckpt-5.index")
    assert inventory(tmp_path)[0].state == "corrupt"
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "ckpt-15"\n')
    assert inventory(tmp_path)[2].reason == "named by checkpoint and not there"


@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_hdf5(tmp_path, libver):
    path = tmp_path / "weights.07-0.41.h5"
    with h5py.File(path, "w", libver=libver) as file:
        file.attrs["keras_version"] = "2.15"
        file.create_dataset("model_weights/dense/kernel", data=numpy.arange(4096.0))
    assert (only(tmp_path).format, only(tmp_path).state) == ("keras-h5", "complete")
    cut(path)
    assert only(tmp_path).state == "corrupt" and only(tmp_path).reason.startswith("cut: ")


def test_hdf5_data_set_is_no_checkpoint(tmp_path):
    with h5py.File(tmp_path / "spectra.h5", "w") as file:
        file.create_dataset("x", data=numpy.arange(10.0))
    assert inventory(tmp_path) == []


def keras(path: Path) -> Path:
    weights = io.BytesIO()
    with h5py.File(weights, "w") as file:
        file.create_dataset("layers/dense/vars/0", data=numpy.arange(64.0))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", '{"keras_version": "3.0"}')
        archive.writestr("config.json", "{}")
        archive.writestr("model.weights.h5", weights.getvalue())
    return path


def test_keras(tmp_path):
    path = keras(tmp_path / "best.keras")
    assert (only(tmp_path).format, only(tmp_path).state) == ("keras", "complete")
    cut(path)
    assert only(tmp_path).state == "corrupt"


# --- single files


def test_lightning_and_plain_files(tmp_path):
    torch_zip(tmp_path / "lightning_logs" / "version_0" / "checkpoints" / "epoch=3-step=400.ckpt")
    torch_zip(tmp_path / "last.pt")
    (tmp_path / "epoch=4-step=500.ckpt.tmp").write_bytes(b"x")
    found = {os.path.relpath(c.path, tmp_path): (c.format, c.state, c.step) for c in inventory(tmp_path)}
    assert found == {
        "lightning_logs/version_0/checkpoints/epoch=3-step=400.ckpt": ("lightning", "complete", 400),
        "last.pt": ("pytorch", "complete", None),
        "epoch=4-step=500.ckpt.tmp": ("unknown", "partial", 500),
    }


@pytest.mark.parametrize("share", [0.05, 0.5, 0.95, 0.99])
def test_cut_torch_file(tmp_path, share):
    cut(torch_zip(tmp_path / "model.pt"), share)
    assert only(tmp_path).state == "corrupt"


def test_changed_byte_in_a_torch_file(tmp_path):
    path = torch_zip(tmp_path / "model.pt")
    data = bytearray(path.read_bytes())
    data[2500] ^= 1
    path.write_bytes(data)
    assert only(tmp_path).reason == "the bytes of archive/data/0 are not those that were written (CRC)"


def test_old_pickle_is_not_judged_beyond_its_ends(tmp_path):
    path = tmp_path / "model.pt"
    legacy = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + pickle.dumps(1001, protocol=2) + pickle.dumps({"w": 1}, protocol=2)
    path.write_bytes(legacy)
    assert (only(tmp_path).state, only(tmp_path).reason) == ("complete", "PyTorch's older format: only its first bytes were looked at")
    path.write_bytes(pickle.dumps({"w": 1}))
    assert only(tmp_path).state == "complete"
    path.write_bytes(pickle.dumps({"w": 1})[:-1])
    assert only(tmp_path).state == "corrupt"


def test_no_pickle_is_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "sprung"),))

    trap = pickle.dumps(Trap())
    (tmp_path / "model.pt").write_bytes(trap)
    with zipfile.ZipFile(tmp_path / "zipped.pt", "w") as archive:
        archive.writestr("archive/data.pkl", trap)
    dcp(tmp_path / "step-1", 1)
    (tmp_path / "step-1" / ".metadata").write_bytes(trap)
    assert len(inventory(tmp_path)) == 3
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty file"),
        (b"\0" * 4096, "begins with zeros: its bytes never reached the disk"),
        (struct.pack("<Q", 1 << 62) + b"{}", "its first 8 bytes give a header of 4611686018427387904 bytes: no safetensors file"),
        (struct.pack("<Q", 2) + b"[]", "its header is no valid JSON table of tensors"),
        (struct.pack("<Q", 40) + b'{"w":{"data_offsets":[0,"x"]}}          ', "its header is no valid JSON table of tensors"),
        (struct.pack("<Q", 100_000) + b"[" * 100_000, "its header is no valid JSON table of tensors"),
        (struct.pack("<Q", 2) + b"{}" + b"x" * 9, "9 bytes more than its header tells of"),
        (struct.pack("<Q", 90) + b'{"w"', "cut: the header alone has 90 bytes, the file 12"),
    ],
)
def test_bad_safetensors(tmp_path, content, reason):
    (tmp_path / "lora.safetensors").write_bytes(content)
    assert (only(tmp_path).state, only(tmp_path).reason) == ("corrupt", reason)


def test_git_lfs_pointer(tmp_path):
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n")
    assert only(tmp_path).state == "partial"


def test_zip_bomb_is_not_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "model.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"x")
        with archive.open("archive/data/0", "w", force_zip64=True) as member:
            for _ in range(256):
                member.write(bytes(1 << 20))
    import tracemalloc

    tracemalloc.start()
    assert only(tmp_path).state == "complete"
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


def test_directory_that_lies(tmp_path):
    path = torch_zip(tmp_path / "model.pt")
    data = bytearray(path.read_bytes())
    at = data.rfind(b"PK\x05\x06")
    data[at + 12 : at + 16] = struct.pack("<L", 0x7FFFFFFF)
    path.write_bytes(data)
    assert only(tmp_path).state == "corrupt"


def test_boosters(tmp_path):
    (tmp_path / "xgb_model.json").write_text('{"learner":{"gradient_booster":{}},"version":[2,1,0]}')
    (tmp_path / "lgb_model.txt").write_text("tree\nversion=v4\nTree=0\nleaf=1\n\nend of trees\n\npandas_categorical:null\n")
    (tmp_path / "model.cbm").write_bytes(b"CBM1" + struct.pack("<L", 500) + b"x" * 500)
    assert states(tmp_path) == {"xgb_model.json": "complete", "lgb_model.txt": "complete", "model.cbm": "complete"}
    for name in ("xgb_model.json", "lgb_model.txt", "model.cbm"):
        cut(tmp_path / name)
    assert states(tmp_path) == {"xgb_model.json": "corrupt", "lgb_model.txt": "corrupt", "model.cbm": "corrupt"}


def test_files_that_are_no_models(tmp_path):
    (tmp_path / "model_notes.txt").write_text("about the model")
    (tmp_path / "model_card.json").write_text('{"license": "mit"}')
    torch_zip(tmp_path / "train.pt")
    torch_zip(tmp_path / "rng_state_0.pth")
    (tmp_path / "faiss.index").write_bytes(b"IxFI" + b"x" * 100)
    found = states(tmp_path)
    assert set(found) <= {"faiss.index", "faiss"}


# --- bounds


def test_links_are_not_followed(tmp_path):
    hf(tmp_path / "runs", 10)
    (tmp_path / "runs" / "again").symlink_to(tmp_path / "runs", target_is_directory=True)
    (tmp_path / "runs" / "last.pt").symlink_to(tmp_path / "elsewhere.pt")
    assert states(tmp_path / "runs") == {"checkpoint-10": "complete"}


def test_fifo_with_a_checkpoint_name(tmp_path):
    os.mkfifo(tmp_path / "model.pt")
    said = []
    checkpoints.walk(tmp_path, lambda name, reason: said.append((name, reason)))
    assert said == [("model.pt", "a named pipe: reading it would wait")]
    assert inventory(tmp_path) == []


def test_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "MAX_ENTRIES", 20)
    for n in range(50):
        (tmp_path / f"{n}.txt").write_text("x")
    said = []
    tree = checkpoints.walk(tmp_path, lambda name, reason: said.append(reason))
    assert len(tree.files) == 20
    assert said == ["more than 20 files and folders; the rest was not looked at"]


@pytest.mark.parametrize(
    ("path", "step"),
    [
        ("out/checkpoint-500", 500),
        ("epoch=3-step=400.ckpt", 400),
        ("global_step100", 100),
        ("iter_0000250", 250),
        ("ckpts/001200", 1200),
        ("run/step-50/model.pt", 50),
        ("best.pt", None),
        ("run42/last.ckpt", None),
    ],
)
def test_step_of(path, step):
    assert step_of(path) == step
