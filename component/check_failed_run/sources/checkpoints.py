"""Checkpoints on disk: which are whole, cut or half written, without unpickling anything.

Formats and what is looked at:

* Hugging Face ``checkpoint-N``: weights, index and shards, ``trainer_state.json`` (transformers writes it last)
* DeepSpeed ``global_stepN``: shards of model and optimizer states, the ``latest`` file (written last)
* PyTorch DCP and FSDP: ``.metadata`` (written last) and the ``__R_N.distcp`` files that it names
* Megatron ``iter_N`` and ``latest_checkpointed_iteration.txt`` (written last)
* Orbax: temporary folders, ``commit_success.txt``, ``_CHECKPOINT_METADATA``
* TensorFlow: ``.index``, ``.data-i-of-n``, the ``checkpoint`` file
* single files: see ``checkpoint_files``

A pickle is never loaded: only file names in its bytes are searched.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from check_failed_run.record import Checkpoint
from check_failed_run.sources.checkpoint_files import COMPLETE, CORRUPT, PARTIAL, Verdict, judge_file, kind_of, read_bytes, read_json

MAX_ENTRIES = 50_000  # files and folders of one inventory
MAX_DEPTH = 12
MAX_INDEX = 64 << 20  # bytes of a shard index or of DCP metadata that are searched


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A regular file below the folder that was named. ``relative`` has forward slashes."""

    path: Path
    relative: str
    size: int
    mtime: float

    @property
    def name(self) -> str:
        return self.relative.rsplit("/", 1)[-1]

    @property
    def folder(self) -> str:
        return self.relative.rsplit("/", 1)[0] if "/" in self.relative else ""


class Tree:
    """Files below one folder, by folder."""

    def __init__(self, root: Path, files: Iterable[FoundFile], folders: Iterable[str] = ()):
        self.root = root
        self.files = sorted(files, key=lambda f: f.relative)
        self.by_folder: dict[str, dict[str, FoundFile]] = defaultdict(dict)
        self.below: dict[str, list[FoundFile]] = defaultdict(list)
        self.children: dict[str, set[str]] = defaultdict(set)
        for name in folders:
            self._add_folder(name)
        for file in self.files:
            self._add_folder(file.folder)
            self.by_folder[file.folder][file.name] = file
            folder = file.folder
            while True:
                self.below[folder].append(file)
                if not folder:
                    break
                folder = parent(folder)

    def _add_folder(self, name: str) -> None:
        while name and name not in self.children[parent(name)]:
            self.children[parent(name)].add(name)
            name = parent(name)

    def folders(self) -> list[str]:
        """Every folder, parents first."""
        names = {name for children in self.children.values() for name in children} | {""}
        return sorted(names, key=lambda n: (n.count("/") + bool(n), n))


def parent(folder: str) -> str:
    return folder.rsplit("/", 1)[0] if "/" in folder else ""


def base(folder: str) -> str:
    return folder.rsplit("/", 1)[-1]


def walk(root: Path, skip: Callable[[str, str], None] | None = None) -> Tree:
    """Regular files below ``root``, the nearest first: at most :data:`MAX_ENTRIES` entries and :data:`MAX_DEPTH` levels.

    Links are not followed: what they lead to inside the folder is found anyway. ``skip`` is told a relative path and
    the reason of whatever is left out.
    """
    say = skip or (lambda relative, reason: None)
    files: list[FoundFile] = []
    folders: list[str] = []
    count = 0
    waiting: deque[tuple[Path, str]] = deque([(root, "")])
    while waiting:
        folder, name = waiting.popleft()
        try:
            with os.scandir(folder) as scan:
                entries = sorted(itertools.islice(scan, MAX_ENTRIES + 1), key=lambda e: e.name)
        except OSError as error:
            say(name or ".", error.strerror or str(error))
            continue
        for entry in entries:
            relative = f"{name}/{entry.name}" if name else entry.name
            count += 1
            if count > MAX_ENTRIES:
                say(name or ".", f"more than {MAX_ENTRIES} files and folders; the rest was not looked at")
                return Tree(root, files, folders)
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError as error:
                say(relative, error.strerror or str(error))
                continue
            if stat.S_ISREG(info.st_mode):
                files.append(FoundFile(Path(entry.path), relative, info.st_size, info.st_mtime))
            elif not stat.S_ISDIR(info.st_mode):
                if reason := _why_not(Path(entry.path), info.st_mode, root):
                    say(relative, reason)
            elif entry.name in _NOT_ARTIFACTS:
                continue
            elif relative.count("/") >= MAX_DEPTH:
                say(relative, f"more than {MAX_DEPTH} levels deep")
            else:
                folders.append(relative)
                waiting.append((Path(entry.path), relative))
    return Tree(root, files, folders)


_NOT_ARTIFACTS = frozenset({".git", ".svn", "__pycache__", "node_modules", "site-packages", ".ipynb_checkpoints", ".venv"})
_SPECIAL = ((stat.S_ISFIFO, "a named pipe: reading it would wait"), (stat.S_ISSOCK, "a socket"), (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"))


def _why_not(path: Path, mode: int, root: Path) -> str | None:
    """Why something that is neither file nor folder is left out; None for a link to what lies in the folder itself."""
    for test, reason in _SPECIAL:
        if test(mode):
            return reason
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return "a link that leads nowhere, or in a circle"
    return None if target.is_relative_to(root.resolve()) else "a link that leads out of the folder: name its target to have it read"


def inventory(root: Path | str, tree: Tree | None = None) -> list[Checkpoint]:
    """Every checkpoint below ``root``, newest last (by step, then time, then path).

    Args:
        root: the folder; paths of the result begin with it.
        tree: its files, where they were listed before.
    """
    return take_inventory(root, tree)[0]


def take_inventory(root: Path | str, tree: Tree | None = None) -> tuple[list[Checkpoint], dict[str, str]]:
    """As :func:`inventory`, and which files belong to which checkpoint: relative file path to the checkpoint's path."""
    stock = _Stock(tree if tree is not None else walk(Path(root)))
    for folder in stock.tree.folders():
        if not stock.is_owned(folder):
            for reader in (_orbax, _deepspeed, _megatron, _dcp, _hugging_face):
                if reader(stock, folder):
                    break
    for folder in stock.tree.folders():
        if not stock.is_owned(folder):
            _tensorflow(stock, folder)
            _single_files(stock, folder)
    _compare_shards(stock)
    _trackers(stock)
    found = [draft.finished(Path(root)) for draft in stock.drafts]
    return sorted(found, key=lambda c: (c.step if c.step is not None else -1, c.time or 0.0, c.path)), stock.owner


@dataclass(slots=True)
class _Draft:
    relative: str
    format: str
    verdict: Verdict
    files: list[FoundFile]
    step: int | None = None
    shards: int | None = None  # compared with the other checkpoints of the same folder

    def finished(self, root: Path) -> Checkpoint:
        return Checkpoint(
            path=str(root / self.relative) if self.relative else str(root),
            format=self.format,
            state=self.verdict.state,
            step=self.step,
            time=max((f.mtime for f in self.files), default=None),
            reason=self.verdict.reason,
            bytes=sum(f.size for f in self.files),
        )


class _Stock:
    """What was found so far."""

    def __init__(self, tree: Tree):
        self.tree = tree
        self.drafts: list[_Draft] = []
        self.owner: dict[str, str] = {}
        self._owned: set[str] = set()

    def is_owned(self, folder: str) -> bool:
        while True:
            if folder in self._owned:
                return True
            if not folder:
                return False
            folder = parent(folder)

    def add_folder(self, folder: str, format_: str, verdict: Verdict, *, step: int | None = None, shards: int | None = None) -> None:
        files = self.tree.below[folder]
        self._owned.add(folder)
        self.drafts.append(_Draft(folder, format_, verdict, files, step if step is not None else step_of(folder), shards))
        self.owner.update((f.relative, folder) for f in files)

    def add_files(self, relative: str, format_: str, verdict: Verdict, files: list[FoundFile], step: int | None = None) -> None:
        self.drafts.append(_Draft(relative, format_, verdict, files, step if step is not None else step_of(relative)))
        self.owner.update((f.relative, relative) for f in files)


# --- names

_STEP = re.compile(r"(?i)(?:checkpoint|ckpt|global[_-]?step|step|iter(?:ation)?|update)[-_=.]?0*(\d{1,15})(?!\d)")
_STEP_ONLY = re.compile(r"0*(\d{1,15})(?:\.orbax-checkpoint-tmp\S*)?$")


def step_of(path: str) -> int | None:
    """The step in a checkpoint's name, or in its folder's: checkpoint-500, epoch=3-step=400.ckpt, global_step100, iter_0000100, 1200."""
    parts = PurePosixPath(path).parts[-2:]
    for part in reversed(parts):
        if found := _STEP.findall(part):
            return int(found[-1])
        if m := _STEP_ONLY.fullmatch(part):
            return int(m[1])
    return None


# --- formats that are folders


def _worst(verdicts: Iterable[tuple[str, Verdict]]) -> Verdict:
    """The first corrupt part, else the first partial one, else complete."""
    found: dict[str, Verdict] = {}
    for name, verdict in verdicts:
        if verdict.state != COMPLETE and verdict.state not in found:
            found[verdict.state] = Verdict(verdict.state, f"{name}: {verdict.reason}")
    return found.get(CORRUPT) or found.get(PARTIAL) or Verdict(COMPLETE)


def _judged(files: Iterable[FoundFile]) -> Verdict:
    return _worst((f.name, judge_file(f.path, f.size)) for f in files if kind_of(f.name))


def _listed(names: Iterable[Any], most: int = 3) -> str:
    names = [str(n) for n in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _orbax(stock: _Stock, folder: str) -> bool:
    """Orbax (orbax/checkpoint/_src/path/atomicity.py): a temporary name until the rename, or commit_success.txt on object stores."""
    name = base(folder)
    here = stock.tree.by_folder[folder]
    if ".orbax-checkpoint-tmp" in name:
        stock.add_folder(folder, "orbax", Verdict(PARTIAL, "temporary folder: the save did not finish"))
        return True
    if not folder and "_CHECKPOINT_METADATA" not in here and "_METADATA" not in here:
        return False
    inner = [c for c in stock.tree.children[folder] if ".orbax-checkpoint-tmp" in c or "_METADATA" in stock.tree.by_folder[c]]
    marks = {"_CHECKPOINT_METADATA", "commit_success.txt"} & set(here)
    if not marks and "_METADATA" not in here and not (inner and _STEP_ONLY.fullmatch(name)):
        return False
    stock.add_folder(folder, "orbax", _judge_orbax(stock, folder, inner))
    return True


def _judge_orbax(stock: _Stock, folder: str, inner: list[str]) -> Verdict:
    for child in inner:
        if ".orbax-checkpoint-tmp" in child:
            return Verdict(PARTIAL, f"{base(child)} is a temporary folder: the save did not finish")
    here = stock.tree.by_folder[folder]
    if "_CHECKPOINT_METADATA" in here:
        meta = read_json(here["_CHECKPOINT_METADATA"].path)
        if not isinstance(meta, dict):
            return Verdict(CORRUPT, "_CHECKPOINT_METADATA is no JSON object")
        if "commit_timestamp_nsecs" in meta and not meta["commit_timestamp_nsecs"] and "commit_success.txt" not in here:
            return Verdict(PARTIAL, "_CHECKPOINT_METADATA has no commit time: the save did not finish")
    for part in [folder, *inner]:
        files = stock.tree.by_folder[part]
        if "_METADATA" in files and not isinstance(read_json(files["_METADATA"].path), dict):
            return Verdict(CORRUPT, f"{base(part)}/_METADATA is no JSON object")
        if "manifest.ocdbt" in files and files["manifest.ocdbt"].size == 0:
            return Verdict(CORRUPT, f"{base(part)}/manifest.ocdbt is empty")
    return Verdict(COMPLETE)


_MODEL_STATES = re.compile(r"(?:zero_pp_rank_(?P<dp>\d{1,6})_)?mp_rank_(?P<mp>\d{1,6})_model_states\.pt$")
_OPTIM_STATES = re.compile(r"(?:bf16_|fp16_)?zero_pp_rank_(?P<dp>\d{1,6})_mp_rank_(?P<mp>\d{1,6})_optim_states\.pt$")


def _deepspeed(stock: _Stock, folder: str) -> bool:
    """DeepSpeed (runtime/engine.py, ``_get_ckpt_name`` and ``_get_zero_ckpt_name``)."""
    here = stock.tree.by_folder[folder]
    shards = [f for f in here.values() if _MODEL_STATES.fullmatch(f.name) or _OPTIM_STATES.fullmatch(f.name)]
    if not shards and not (re.fullmatch(r"global_step\d+", base(folder)) and not stock.tree.below[folder]):
        return False
    stock.add_folder(folder, "deepspeed", _judge_deepspeed(here), shards=len(shards))
    return True


def _judge_deepspeed(here: dict[str, FoundFile]) -> Verdict:
    model = {(int(m["dp"] or 0), int(m["mp"])) for n in here if (m := _MODEL_STATES.fullmatch(n))}
    optim = {(int(m["dp"]), int(m["mp"])) for n in here if (m := _OPTIM_STATES.fullmatch(n))}
    if not model:
        return Verdict(PARTIAL, "no *_model_states.pt" if here else "empty folder")
    for kind, found in (("model_states", model), ("optim_states", optim)):
        missing = _gaps(found)
        if missing:
            return Verdict(PARTIAL, f"{kind} shards missing: " + _listed(f"zero_pp_rank_{d}_mp_rank_{m:02d}" for d, m in missing))
    if optim and {m for _, m in optim} != {m for _, m in model}:
        return Verdict(PARTIAL, "model and optimizer states are not of the same model-parallel ranks")
    return _judged(here.values())


def _gaps(found: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pairs that are missing of a full grid; the grid is as large as the largest numbers found."""
    if not found:
        return []
    rows, columns = max(a for a, _ in found) + 1, max(b for _, b in found) + 1
    if rows * columns > 1_000_000 or rows * columns == len(found):
        return []
    return [(a, b) for a in range(rows) for b in range(columns) if (a, b) not in found][:1000]


_MP_RANK = re.compile(r"mp_rank_(\d{1,6})(?:_(\d{1,6}))?(?:_(\d{1,6}))?$")


def _megatron(stock: _Stock, folder: str) -> bool:
    """Megatron-LM (training/checkpointing.py, ``get_checkpoint_name``): iter_N/mp_rank_TT[_PPP]/model_optim_rng.pt, or a DCP folder."""
    name = base(folder)
    if not re.fullmatch(r"iter_\d{7,}|release", name):
        return False
    ranks = [c for c in stock.tree.children[folder] if _MP_RANK.fullmatch(base(c))]
    here = stock.tree.by_folder[folder]
    if name == "release" and not ranks:
        return False
    if ranks:
        verdict = _judge_megatron(stock, ranks)
    elif ".metadata" in here or any(n.endswith(".distcp") for n in here):
        verdict = _judge_dcp(here)
        if verdict.state == COMPLETE and "common.pt" not in here:
            verdict = Verdict(PARTIAL, "common.pt is missing")
    else:
        verdict = Verdict(PARTIAL, "holds no rank folder" if stock.tree.below[folder] else "empty folder")
    stock.add_folder(folder, "megatron", verdict, shards=len(ranks) or sum(n.endswith(".distcp") for n in here))
    return True


def _judge_megatron(stock: _Stock, ranks: list[str]) -> Verdict:
    grid = {(int(m[1]), int(m[2] or 0)) for r in ranks if (m := _MP_RANK.fullmatch(base(r)))}
    if missing := _gaps(grid):
        return Verdict(PARTIAL, "rank folders missing: " + _listed(f"mp_rank_{t:02d}_{p:03d}" for t, p in missing))
    parts = []
    for rank in sorted(ranks):
        files = stock.tree.by_folder[rank]
        if not any(n.endswith(".pt") for n in files):
            return Verdict(PARTIAL, f"{base(rank)} holds no .pt file")
        parts += [(f"{base(rank)}/{f.name}", judge_file(f.path, f.size)) for f in files.values() if f.name.endswith(".pt")]
    return _worst(parts)


_DCP_FILE = re.compile(rb"__\d{1,6}_\d{1,6}\.distcp")


def _dcp(stock: _Stock, folder: str) -> bool:
    """torch.distributed.checkpoint (filesystem.py): rank 0 writes ``.metadata`` after all shards."""
    here = stock.tree.by_folder[folder]
    shards = [n for n in here if n.endswith(".distcp")]
    if not shards and ".metadata" not in here:
        return False
    above = parent(folder)
    if folder and _is_hugging_face(stock, above):
        return False  # a part of the checkpoint above
    stock.add_folder(folder, "dcp", _judge_dcp(here), shards=len(shards))
    return True


def _judge_dcp(here: dict[str, FoundFile]) -> Verdict:
    shards = {n: f for n, f in here.items() if n.endswith(".distcp")}
    if ".metadata" not in here:
        return Verdict(PARTIAL, "no .metadata, which is written last" + (f" ({len(shards)} shard files are there)" if shards else ""))
    if here[".metadata"].size == 0:
        return Verdict(CORRUPT, ".metadata is empty")
    data = read_bytes(here[".metadata"].path, MAX_INDEX)
    named = {n.decode() for n in _DCP_FILE.findall(data)}
    if missing := sorted(named - set(shards)):
        return Verdict(PARTIAL, f"{len(missing)} of {len(named)} shard files that .metadata names are missing: {_listed(missing)}")
    if not data.endswith(b".") and here[".metadata"].size <= MAX_INDEX:  # STOP, a pickle's last byte
        return Verdict(CORRUPT, ".metadata is cut: it does not end as a pickle does")
    if empty := sorted(n for n in named if shards[n].size == 0):
        return Verdict(CORRUPT, f"empty shard files: {_listed(empty)}")
    return Verdict(COMPLETE)


_WEIGHTS = re.compile(
    r"(?:(?:model|adapter_model|diffusion_pytorch_model)(?:-\d{5}-of-\d{5})?\.safetensors|(?:pytorch_model|adapter_model)(?:-\d{5}-of-\d{5})?\.bin"
    r"|(?:tf_model|adapter_model)\.h5|flax_model\.msgpack)$"
)
_INDEX = re.compile(r"(?:model|pytorch_model|adapter_model|diffusion_pytorch_model)\.(?:safetensors|bin)\.index\.json$")
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.(safetensors|bin)$")
_OPTIMIZER = re.compile(r"optimizer(?:_\d+)?(?:\.pt|\.bin|\.safetensors)?$")
_CHECKPOINT_N = re.compile(r"(?:tmp-)?checkpoint-\d+(?:\.tmp)?$")


def _is_hugging_face(stock: _Stock, folder: str) -> bool:
    here = stock.tree.by_folder[folder]
    if _CHECKPOINT_N.fullmatch(base(folder)):
        return not any(n.endswith((".ckpt", ".index", ".keras")) for n in here) and "_CHECKPOINT_METADATA" not in here
    return any(_WEIGHTS.fullmatch(n) or _INDEX.fullmatch(n) for n in here)


def _hugging_face(stock: _Stock, folder: str) -> bool:
    """transformers Trainer, accelerate save_state, save_pretrained: the Trainer writes trainer_state.json after weights and optimizer."""
    if not _is_hugging_face(stock, folder):
        return False
    here = stock.tree.by_folder[folder]
    trainer = bool(_CHECKPOINT_N.fullmatch(base(folder)))
    step = None
    if "trainer_state.json" in here and trainer and isinstance(state := read_json(here["trainer_state.json"].path), dict):
        step = state.get("global_step") if isinstance(state.get("global_step"), int) else None
    verdict = _judge_hugging_face(stock, folder, trainer)
    if trainer:
        stock.add_folder(folder, "huggingface", verdict, step=step)
        return True
    # an export beside checkpoints: the folder itself stays open for what lies below it
    parts = [f for f in here.values() if _WEIGHTS.fullmatch(f.name) or _INDEX.fullmatch(f.name) or _OPTIMIZER.fullmatch(f.name) or f.name in _SIDE_FILES or re.fullmatch(r"random_states_\d+\.pkl", f.name)]
    stock.add_files(folder, "huggingface", verdict, parts)
    return True


_SIDE_FILES = frozenset({"config.json", "generation_config.json", "adapter_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "scheduler.pt", "scheduler.bin", "scaler.pt", "training_args.bin"})


def _judge_hugging_face(stock: _Stock, folder: str, trainer: bool) -> Verdict:
    here = stock.tree.by_folder[folder]
    if not stock.tree.below[folder]:
        return Verdict(PARTIAL, "empty folder")
    if re.match(r"tmp-|.*\.tmp$", base(folder)):
        return Verdict(PARTIAL, "temporary folder: the save did not finish")
    weights = [f for f in here.values() if _WEIGHTS.fullmatch(f.name)]
    parts = [("", _judge_shards(here, weights))]
    parts += [(f.name, judge_file(f.path, f.size)) for f in weights]
    parts += [(f.name, judge_file(f.path, f.size)) for f in here.values() if _OPTIMIZER.fullmatch(f.name)]
    nested = [c for c in stock.tree.children[folder] if stock.tree.by_folder[c]] if trainer else []
    held = bool(weights)
    optimizer = any(_OPTIMIZER.fullmatch(n) for n in here)
    for child in nested:
        files = stock.tree.by_folder[child]
        if any(_MODEL_STATES.fullmatch(n) or _OPTIM_STATES.fullmatch(n) for n in files):
            parts.append((base(child), _judge_deepspeed(files)))
            held = optimizer = True
        elif ".metadata" in files or any(n.endswith(".distcp") for n in files):
            parts.append((base(child), _judge_dcp(files)))
            held, optimizer = True, optimizer or base(child).startswith("optimizer")
    verdict = _worst(parts)
    if verdict.state != COMPLETE:
        return Verdict(verdict.state, (verdict.reason or "").removeprefix(": "))
    if not held:
        return Verdict(PARTIAL, "holds no weights")
    if trainer and "trainer_state.json" not in here:
        return Verdict(PARTIAL, "no trainer_state.json, which is written last")
    if trainer and not isinstance(read_json(here["trainer_state.json"].path), dict):
        return Verdict(CORRUPT, "trainer_state.json is no JSON object")
    return Verdict(COMPLETE, None if optimizer or not trainer else "no optimizer state: training would go on with a new optimizer")


def _judge_shards(here: dict[str, FoundFile], weights: list[FoundFile]) -> Verdict:
    """Shards against the index, and against their own numbers."""
    for name in sorted(n for n in here if _INDEX.fullmatch(n)):
        index = read_json(here[name].path, MAX_INDEX)
        table = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(table, dict):
            return Verdict(CORRUPT, f"{name} is no index")
        wanted = {str(v) for v in table.values()}
        if missing := sorted(wanted - set(here)):
            return Verdict(PARTIAL, f"{len(missing)} of {len(wanted)} shards that {name} names are missing: {_listed(missing)}")
    groups: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for file in weights:
        if m := _SHARD.fullmatch(file.name):
            groups[m[1], m[3], m[4]].add(m[2])
    for (stem, total, suffix), numbers in sorted(groups.items()):
        if len(numbers) < int(total):
            return Verdict(PARTIAL, f"{len(numbers)} of {int(total)} shards of {stem}.{suffix} are there")
    return Verdict(COMPLETE)


# --- formats that are several files side by side

_TF_DATA = re.compile(r"(.+)\.data-(\d{5})-of-(\d{5})$")


def _tensorflow(stock: _Stock, folder: str) -> None:
    """TensorFlow's tensor bundles (core/util/tensor_bundle): PREFIX.index, an SSTable, and its data shards."""
    here = stock.tree.by_folder[folder]
    shards: dict[str, dict[int, FoundFile]] = defaultdict(dict)
    totals: dict[str, int] = {}
    for name, file in here.items():
        if m := _TF_DATA.fullmatch(name):
            shards[m[1]][int(m[2])] = file
            totals[m[1]] = int(m[3])
    prefixes = set(shards) | {n[:-6] for n in here if n.endswith(".index") and n[:-6] and kind_of(n) == "tensorflow"}
    for prefix in sorted(prefixes):
        index = here.get(f"{prefix}.index")
        found, total = shards.get(prefix, {}), totals.get(prefix, 0)
        verdict = judge_file(index.path, index.size) if index is not None else Verdict(PARTIAL, f"{prefix}.index is missing")
        if verdict.state == COMPLETE and not found:
            verdict = Verdict(PARTIAL, "no data file")
        elif verdict.state == COMPLETE and len(found) < total:
            verdict = Verdict(PARTIAL, f"{len(found)} of {total} data shards are there")
        elif verdict.state == COMPLETE and all(f.size == 0 for f in found.values()):
            verdict = Verdict(CORRUPT, "data files are empty")
        files = [*found.values(), *([index] if index is not None else []), *([here[f"{prefix}.meta"]] if f"{prefix}.meta" in here else [])]
        m = re.search(r"-(\d{1,15})$", prefix)
        stock.add_files(f"{folder}/{prefix}" if folder else prefix, "tensorflow", verdict, files, int(m[1]) if m else None)


_HALF = re.compile(r"(?i)(.+\.(?:safetensors|pt|pth|ckpt|keras|h5|bin|ubj))[._-]?(?:tmp|part|partial|incomplete)(?:[._-]\w{1,20})?$")
_SIDE = re.compile(r"(?i)(?:optimizer|optim|scheduler|scaler|rng_state|random_states|training_args|train_args|sampler)[\w.-]*$")
_DATA_WORDS = re.compile(r"(?i)(?:train|val|valid|validation|test|dev|data|dataset|features|labels|tokens|embeddings?|cache)(?:[_-]?\d{1,6})?\.")


def _single_files(stock: _Stock, folder: str) -> None:
    here = stock.tree.by_folder[folder]
    for name, file in here.items():
        if file.relative in stock.owner or _SIDE.match(name):
            continue
        if _HALF.fullmatch(name):
            stock.add_files(file.relative, "unknown", Verdict(PARTIAL, "temporary name: the save did not finish"), [file])
            continue
        kind = kind_of(name)
        if kind in (None, "tensorflow") or _DATA_WORDS.match(name):
            continue
        verdict = judge_file(file.path, file.size)
        if verdict.format is None and verdict.state == COMPLETE:
            continue  # by its content no model
        format_ = "lightning" if name.endswith(".ckpt") and (verdict.format or kind) == "pytorch" else verdict.format or kind
        stock.add_files(file.relative, format_, verdict, [file])


# --- checkpoints compared with one another


def _compare_shards(stock: _Stock) -> None:
    """The last rank's shard leaves no gap where it is missing: only another checkpoint of the same run shows that."""
    groups: dict[tuple[str, str], list[_Draft]] = defaultdict(list)
    for draft in stock.drafts:
        if draft.shards:
            groups[parent(draft.relative), draft.format].append(draft)
    for drafts in groups.values():
        drafts.sort(key=lambda d: d.step if d.step is not None else -1)
        newest = drafts[-1]
        before = {d.shards for d in drafts[:-1] if d.verdict.state == COMPLETE}
        if newest.verdict.state == COMPLETE and len(before) == 1 and newest.shards < (usual := before.pop()):
            newest.verdict = Verdict(PARTIAL, f"{newest.shards} shards; the earlier checkpoints have {usual}")


def _trackers(stock: _Stock) -> None:
    """Files that name the newest whole checkpoint and are written after it: one that is newer did not finish."""
    readers: tuple[tuple[str, str, Callable[[str], str | None]], ...] = (
        ("latest", "deepspeed", lambda text: text),
        ("latest_checkpointed_iteration.txt", "megatron", lambda text: f"iter_{int(text):07d}" if text.isdigit() else text),
        ("checkpoint", "tensorflow", _tf_newest),
    )
    for folder, files in sorted(stock.tree.by_folder.items()):
        for name, format_, read in readers:
            if name in files and files[name].size < 1 << 20:
                text = read_bytes(files[name].path, 1 << 20).decode("utf-8", "replace").strip()
                if named := read(text):
                    _check_tracker(stock, folder, name, format_, named)


def _tf_newest(text: str) -> str | None:
    m = re.search(r'^model_checkpoint_path: "([^"\n]{1,400})"', text, re.M)
    return m[1].rsplit("/", 1)[-1] if m else None


def _check_tracker(stock: _Stock, folder: str, tracker: str, format_: str, named: str) -> None:
    if len(named) > 200 or "/" in named or "\\" in named or "\n" in named or named in (".", "..") or not named.isprintable():
        return
    drafts = [d for d in stock.drafts if d.format == format_ and parent(d.relative) == folder]
    target = next((d for d in drafts if base(d.relative) == named), None)
    if target is None:
        relative = f"{folder}/{named}" if folder else named
        if relative not in stock.tree.children[folder] and (format_ != "tensorflow" or drafts):
            stock.drafts.append(_Draft(relative, format_, Verdict(PARTIAL, f"named by {tracker} and not there"), [], step_of(relative)))
        return
    for draft in drafts:
        if draft.verdict.state == COMPLETE and draft.step is not None and target.step is not None and draft.step > target.step and format_ != "tensorflow":
            draft.verdict = Verdict(PARTIAL, f"{tracker}, which is written last, still names {named}")


__all__ = ["FoundFile", "Tree", "inventory", "step_of", "take_inventory", "walk"]
