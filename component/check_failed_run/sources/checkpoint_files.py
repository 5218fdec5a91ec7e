"""One checkpoint file: whole or not, by its container's own sizes. Nothing is unpickled, nothing is decompressed.

What is looked at:

* safetensors: header length, JSON, offsets against the file's size
  (https://huggingface.co/docs/safetensors/index#format)
* PyTorch zip archives (torch >= 1.6) and ``.keras``: the central directory, every local header, CRC of stored members of small files
* PyTorch's older pickles: only the magic and the end
* HDF5: the superblock's end-of-file address against the size (HDF5 File Format Specification, "Format Signature and Superblock")
* TensorFlow ``.index``: the table's magic at the end (tensorflow/core/lib/io/format.h)
* XGBoost (JSON, UBJSON), LightGBM (text), CatBoost: how the file begins and ends
"""

from __future__ import annotations

import json
import os
import re
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

COMPLETE, PARTIAL, CORRUPT = "complete", "partial", "corrupt"
MAX_HEADER = 25_000_000  # bytes of a safetensors header that are parsed; the format itself allows 100 MB
MAX_DIRECTORY = 16 << 20  # bytes of a zip's central directory
MAX_MEMBERS = 200_000
MAX_CRC = 64 << 20  # bytes of stored members whose CRC is computed
MAX_JSON = 16 << 20


@dataclass(frozen=True, slots=True)
class Verdict:
    """``state`` is complete, partial or corrupt; ``format`` what the content shows, where it shows something."""

    state: str
    reason: str | None = None
    format: str | None = None


def read_bytes(path: Path, limit: int) -> bytes:
    """The first ``limit`` bytes, or none where the file cannot be read."""
    try:
        with _open(path) as file:
            return file.read(limit)
    except OSError:
        return b""


def read_json(path: Path, limit: int = MAX_JSON) -> Any:
    """The JSON value of a file of at most ``limit`` bytes; None where it is longer, unreadable or no JSON."""
    data = read_bytes(path, limit + 1)
    if len(data) > limit:
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def _open(path: Path) -> BinaryIO:
    """Opens without waiting, should the file have become a FIFO since it was listed."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))


_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("safetensors", r".+\.safetensors"),
        ("pytorch", r".+\.(?:pt|pth|ckpt|pth\.tar|pt\.tar)|(?:pytorch_model|adapter_model|model|optimizer)[\w.-]*\.bin"),
        ("keras", r".+\.keras"),
        ("hdf5", r".+\.(?:h5|hdf5)"),
        ("tensorflow", r".+\.index"),
        ("catboost", r".+\.cbm"),
        ("xgboost", r".+\.ubj|.*(?:xgb|booster|model)[\w-]*\.(?:json|model|bst)"),
        ("lightgbm", r".*(?:lgb|lightgbm|booster|model)[\w-]*\.txt"),
    )
)


def kind_of(name: str) -> str | None:
    """The format that a file's name promises, or None."""
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(name)), None)


def judge_file(path: Path, size: int) -> Verdict:
    """Judge one file by its name's format and its content. Never raises for what the file holds."""
    kind = kind_of(path.name)
    try:
        with _open(path) as file:
            if size == 0:
                return Verdict(CORRUPT, "empty file")
            head = file.read(4096)
            if not head.strip(b"\0") and size >= 64:
                return Verdict(CORRUPT, "begins with zeros: its bytes never reached the disk")
            file.seek(0)
            return _JUDGES[kind](file, head, size) if kind else Verdict(COMPLETE)
    except OSError as error:
        return Verdict(CORRUPT, f"cannot be read: {error.strerror or error}")


def _safetensors(file: BinaryIO, head: bytes, size: int) -> Verdict:
    if head.startswith(b"version https://git-lfs"):
        return Verdict(PARTIAL, "a Git LFS pointer: the file itself was not fetched", "safetensors")
    if size < 8:
        return _cut("safetensors", "its header is not whole")
    length = struct.unpack("<Q", head[:8])[0]
    if length > 100_000_000 or (length > size - 8 and head[8:9] != b"{"):
        return Verdict(CORRUPT, f"its first 8 bytes give a header of {length} bytes: no safetensors file", "safetensors")
    if length > size - 8:
        return _cut("safetensors", f"the header alone has {length} bytes, the file {size}")
    if length > MAX_HEADER:
        return Verdict(CORRUPT, f"its header of {length} bytes is larger than any known model's", "safetensors")
    file.seek(8)
    try:
        header = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        end = max(ends, default=0)
        whole = 8 + length + end
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError, IndexError):
        return Verdict(CORRUPT, "its header is no valid JSON table of tensors", "safetensors")
    if not all(isinstance(e, int) for e in ends):
        return Verdict(CORRUPT, "its header holds offsets that are no numbers", "safetensors")
    if size < whole:
        return _cut("safetensors", f"{size} of {whole} bytes are there")
    if size > whole:
        return Verdict(CORRUPT, f"{size - whole} bytes more than its header tells of", "safetensors")
    return Verdict(COMPLETE, None, "safetensors")


def _cut(format_: str, how: str) -> Verdict:
    return Verdict(CORRUPT, f"cut: {how}", format_)


# --- zip archives

_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # torch.serialization.MAGIC_NUMBER, pickled with protocol 2


def _pytorch(file: BinaryIO, head: bytes, size: int) -> Verdict:
    if head.startswith(b"PK\x03\x04"):
        return _zip(file, size, "pytorch", lambda names: any(n.endswith(("data.pkl", "constants.pkl", "byteorder")) for n in names), "no data.pkl in the archive")
    if head.startswith(_LEGACY):
        return Verdict(COMPLETE, "PyTorch's older format: only its first bytes were looked at", "pytorch")
    if head[:1] == b"\x80" and 2 <= head[1] <= 5:
        file.seek(size - 1)
        if file.read(1) != b".":
            return Verdict(CORRUPT, "a pickle that does not end as one: it was cut", "pytorch")
        return Verdict(COMPLETE, "a plain pickle: only its first and last bytes were looked at", "pytorch")
    if head.startswith(b"version https://git-lfs"):
        return Verdict(PARTIAL, "a Git LFS pointer: the file itself was not fetched", "pytorch")
    if b"ustar" in head[257:265]:
        return Verdict(COMPLETE, "a tar archive: not judged", "pytorch")
    return Verdict(CORRUPT, "begins neither as a zip archive nor as a pickle", "pytorch")


def _keras(file: BinaryIO, head: bytes, size: int) -> Verdict:
    if not head.startswith(b"PK\x03\x04"):
        return _hdf5(file, head, size) if head.startswith(_HDF5) else Verdict(CORRUPT, "no zip archive", "keras")
    return _zip(file, size, "keras", lambda names: {"config.json", "model.weights.h5"} <= names, "config.json or model.weights.h5 is missing")


def _zip(file: BinaryIO, size: int, format_: str, expected: Any, otherwise: str) -> Verdict:
    directory = _directory_size(file, size)
    if directory is None:
        return _cut(format_, "no central directory at its end")
    if directory > MAX_DIRECTORY:
        return Verdict(CORRUPT, f"its central directory of {directory} bytes is larger than any known model's", format_)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > MAX_MEMBERS:
                return Verdict(CORRUPT, f"{len(members)} members: no checkpoint", format_)
            if not expected({m.filename for m in members}):
                return Verdict(CORRUPT, otherwise, format_)
            return _members(file, size, members, format_)
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, struct.error, OverflowError) as error:
        return Verdict(CORRUPT, f"its central directory cannot be read: {str(error)[:80]}", format_)


def _directory_size(file: BinaryIO, size: int) -> int | None:
    """Size of a zip's central directory from its end record (APPNOTE 4.3.16; 4.3.14 for zip64); None where there is none."""
    tail_size = min(size, (1 << 16) + 22)
    file.seek(size - tail_size)
    tail = file.read(tail_size)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < 22:
        return None
    directory, offset = struct.unpack("<LL", tail[at + 12 : at + 20])
    if directory == 0xFFFFFFFF or offset == 0xFFFFFFFF:
        at64 = tail.rfind(b"PK\x06\x06", 0, at)
        if at64 < 0 or len(tail) - at64 < 56:
            return None
        directory = struct.unpack("<Q", tail[at64 + 40 : at64 + 48])[0]
    return directory


def _members(file: BinaryIO, size: int, members: list[zipfile.ZipInfo], format_: str) -> Verdict:
    """Every member's local header and end, and the CRC of stored members of a small archive. Packed members are never unpacked."""
    small = sum(m.compress_size for m in members) <= MAX_CRC
    for member in members:
        file.seek(member.header_offset)
        local = file.read(30)
        if len(local) < 30 or local[:4] != b"PK\x03\x04":
            return Verdict(CORRUPT, f"{_shown(member)} does not lie where the directory says", format_)
        start = member.header_offset + 30 + sum(struct.unpack("<HH", local[26:30]))
        if start + member.compress_size > size:
            return _cut(format_, f"{_shown(member)} ends behind the file's end")
        if small and member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1 and _crc(file, start, member.compress_size) != member.CRC:
            return Verdict(CORRUPT, f"the bytes of {_shown(member)} are not those that were written (CRC)", format_)
    return Verdict(COMPLETE, None, format_)


def _shown(member: zipfile.ZipInfo) -> str:
    return "".join(c if c.isprintable() else "?" for c in member.filename[-80:])


def _crc(file: BinaryIO, start: int, size: int) -> int:
    file.seek(start)
    crc = 0
    while size > 0:
        piece = file.read(min(size, 1 << 20))
        if not piece:
            break
        crc = zlib.crc32(piece, crc)
        size -= len(piece)
    return crc


# --- HDF5, TensorFlow, boosters

_HDF5 = b"\x89HDF\r\n\x1a\n"
_KERAS_WORDS = (b"keras_version", b"layer_names", b"model_weights", b"_layer_checkpoint_dependencies", b"optimizer_weights", b"model_config")
_WEIGHT_NAME = re.compile(r"(?i)weights|model|ckpt|checkpoint|epoch|step|best")


def _hdf5(file: BinaryIO, head: bytes, size: int) -> Verdict:
    if not head.startswith(_HDF5):
        return Verdict(CORRUPT, "no HDF5 signature", "keras-h5")
    file.seek(0)
    is_model = _WEIGHT_NAME.search(os.path.basename(str(file.name))) or any(w in file.read(1 << 20) for w in _KERAS_WORDS)
    format_ = "keras-h5" if is_model else None
    end = _hdf5_end(head)
    if end is None:
        return Verdict(CORRUPT, "its superblock cannot be read", "keras-h5")
    if size < end:
        return _cut("keras-h5", f"{size} of {end} bytes are there")
    return Verdict(COMPLETE, None, format_)


def _hdf5_end(head: bytes) -> int | None:
    """The superblock's end-of-file address: versions 0 and 1 with four addresses, 2 and 3 with four as well, at other places."""
    version = head[8]
    if version in (0, 1):
        width, first = head[13], 24 + 4 * version
    elif version in (2, 3):
        width, first = head[9], 12
    else:
        return None
    if width not in (4, 8):
        return None
    base_address = int.from_bytes(head[first : first + width], "little")
    end = int.from_bytes(head[first + 2 * width : first + 3 * width], "little")
    return base_address + end if end != (1 << (8 * width)) - 1 else None


_TABLE = struct.pack("<Q", 0xDB4775248B80FB57)


def _tf_index(file: BinaryIO, head: bytes, size: int) -> Verdict:
    file.seek(max(0, size - 8))
    if file.read(8) != _TABLE:
        return _cut("tensorflow", "the .index file does not end with the table's magic")
    return Verdict(COMPLETE, None, "tensorflow")


def _xgboost(file: BinaryIO, head: bytes, size: int) -> Verdict:
    """XGBoost's JSON and UBJSON models are one object with the keys learner and version."""
    if head.lstrip()[:1] != b"{":
        return Verdict(COMPLETE)
    file.seek(max(0, size - 4096))
    tail = file.read(4096)
    if b"learner" not in head[:200] and b"learner" not in tail + head:
        return Verdict(COMPLETE)
    if not tail.rstrip().endswith(b"}"):
        return _cut("xgboost", "the object is not closed")
    return Verdict(COMPLETE, None, "xgboost")


def _lightgbm(file: BinaryIO, head: bytes, size: int) -> Verdict:
    """LightGBM's text models begin with ``tree`` and a version; ``end of trees`` follows the last one."""
    if not head.startswith(b"tree\n"):
        return Verdict(COMPLETE)
    file.seek(max(0, size - (1 << 20)))
    if b"end of trees" not in file.read(1 << 20):
        return _cut("lightgbm", "no 'end of trees'")
    return Verdict(COMPLETE, None, "lightgbm")


def _catboost(file: BinaryIO, head: bytes, size: int) -> Verdict:
    """CatBoost: ``CBM1``, the core's size as uint32, then the core (catboost/libs/model/model.cpp)."""
    if not head.startswith(b"CBM1") or len(head) < 8:
        return Verdict(CORRUPT, "no CatBoost signature", "catboost")
    core = struct.unpack("<L", head[4:8])[0]
    if 8 + core > size:
        return _cut("catboost", f"{size} of at least {8 + core} bytes are there")
    return Verdict(COMPLETE, None, "catboost")


_JUDGES = {
    "safetensors": _safetensors,
    "pytorch": _pytorch,
    "keras": _keras,
    "hdf5": _hdf5,
    "tensorflow": _tf_index,
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "catboost": _catboost,
}
