"""Scalars of TensorBoard event files, as lines of JSON that the metric readers understand.

An event file is a sequence of TFRecords (tensorflow/core/lib/io/record_writer.h): length, CRC of the length, data, CRC of
the data; each record is one ``Event`` message (tensorboard/compat/proto/event.proto). Only the fields of scalars are
declared here, so that images, histograms and graphs are skipped by protobuf's own parser.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

MAX_RECORD = 1 << 20  # bytes of an event that are read; longer ones hold images, graphs, audio
MAX_READ = 512 << 20  # bytes read of one folder's event files
MAX_SCALARS = 500_000  # scalars kept of one folder

EVENT_FILE = re.compile(r"(?:^|.*\.)tfevents\.\S+$|events\.out\.tfevents\S*$")


class Scalar(NamedTuple):
    """One value of one tag. ``time`` is seconds since the epoch."""

    step: int
    time: float
    tag: str
    value: float


class MissingLibrary(ImportError):
    """protobuf or google-crc32c is not installed."""


@cache
def _message() -> Any:
    """The class of ``Event``, with the fields that scalars need."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="check_failed_run/event.proto", package="check_failed_run", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, str | None, bool]) -> None:
        declared = file.message_type.add(name=name)
        for field, number, kind, type_name, repeated in fields:
            declared.field.add(
                name=field, number=number, type=kind, type_name=type_name and f".check_failed_run.{type_name}",
                label=kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL,
            )  # fmt: skip

    message("PluginData", ("plugin_name", 1, kinds.TYPE_BYTES, None, False))
    message("Metadata", ("plugin_data", 1, kinds.TYPE_MESSAGE, "PluginData", False))
    message(
        "Tensor",
        ("dtype", 1, kinds.TYPE_INT32, None, False),
        ("tensor_content", 4, kinds.TYPE_BYTES, None, False),
        ("float_val", 5, kinds.TYPE_FLOAT, None, True),
        ("double_val", 6, kinds.TYPE_DOUBLE, None, True),
        ("int_val", 7, kinds.TYPE_INT32, None, True),
        ("int64_val", 10, kinds.TYPE_INT64, None, True),
    )
    message(
        "Value",
        ("tag", 1, kinds.TYPE_BYTES, None, False),
        ("simple_value", 2, kinds.TYPE_FLOAT, None, False),
        ("tensor", 8, kinds.TYPE_MESSAGE, "Tensor", False),
        ("metadata", 9, kinds.TYPE_MESSAGE, "Metadata", False),
    )
    # simple_value is one of several kinds of value: only then a 0.0 is told from an image
    value = file.message_type[-1]
    value.oneof_decl.add(name="value")
    for field in value.field:
        if field.name in ("simple_value", "tensor"):
            field.oneof_index = 0
    message("Summary", ("value", 1, kinds.TYPE_MESSAGE, "Value", True))
    message(
        "Event",
        ("wall_time", 1, kinds.TYPE_DOUBLE, None, False),
        ("step", 2, kinds.TYPE_INT64, None, False),
        ("summary", 5, kinds.TYPE_MESSAGE, "Summary", False),
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("check_failed_run.Event"))


def read_scalars(path: Path, budget: int = MAX_READ, note: Callable[[str], None] | None = None) -> Iterator[Scalar]:
    """Scalars of one event file, in file order. What ends the reading early (a cut or damaged file) goes to ``note``.

    Raises:
        MissingLibrary: protobuf or google-crc32c is not installed.
        OSError: the file cannot be read.
    """
    try:
        event_class = _message()
        from google_crc32c import value as crc32c
    except ImportError as error:
        raise MissingLibrary(error.name) from None
    from google.protobuf.message import DecodeError

    say = note or (lambda text: None)
    with path.open("rb") as file:
        for record in _records(file, budget, crc32c, say):
            try:
                event = event_class.FromString(record)
            except DecodeError:
                say("an event is no valid message; the rest was not read")
                return
            for value in event.summary.value:
                number = _number(value)
                if number is not None:
                    yield Scalar(event.step, event.wall_time, value.tag.decode("utf-8", "replace"), number)


def _records(file: Any, budget: int, crc32c: Callable[[bytes], int], say: Callable[[str], None]) -> Iterator[bytes]:
    size = os.fstat(file.fileno()).st_size
    at = 0
    while at < size:
        header = file.read(12)
        if len(header) < 12:
            say("cut: the last record's header is not whole")
            return
        length, crc = struct.unpack("<QL", header)
        if _masked(crc32c(header[:8])) != crc:
            say(f"damaged at byte {at}; the rest was not read")
            return
        at += 16 + length
        if at > size:
            say("cut: the last record is not whole")
            return
        if length > MAX_RECORD:
            file.seek(length + 4, os.SEEK_CUR)
            continue
        budget -= length
        if budget < 0:
            say("more scalars than are read; the rest was left out")
            return
        data = file.read(length)
        if _masked(crc32c(data)) != struct.unpack("<L", file.read(4))[0]:
            say(f"damaged before byte {at}; the rest was not read")
            return
        yield data


def _masked(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


_TENSORS = {1: ("float_val", "<f"), 2: ("double_val", "<d"), 3: ("int_val", "<i"), 9: ("int64_val", "<q")}  # DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64


def _number(value: Any) -> float | None:
    """The scalar of a Value; None where it is something else (tensorboard/plugins/scalar/metadata.py)."""
    kind = value.WhichOneof("value")
    if kind == "simple_value":
        return value.simple_value
    if kind != "tensor" or value.metadata.plugin_data.plugin_name not in (b"scalars", b""):
        return None
    tensor = value.tensor
    name, layout = _TENSORS.get(tensor.dtype, ("", ""))
    if not name:
        return None
    listed = getattr(tensor, name)
    if len(listed) == 1:
        return float(listed[0])
    if not listed and len(tensor.tensor_content) == struct.calcsize(layout):
        return float(struct.unpack(layout, tensor.tensor_content)[0])
    return None


# --- scalars to lines

_EVAL_FOLDER = re.compile(r"(?i)(?:^|[/_-])(?:val|valid|validation|eval|evaluation|test|dev)(?:$|[/_-])")
_EVAL_TAG = re.compile(r"(?i)(?:^|[/_.-])(?:val|valid|validation|eval|evaluation|test|dev)(?:$|[/_.-])")
_REVERSED = re.compile(r"(?i)([\w.-]+)/(train|training|val|valid|validation|eval|test)$")
_EPOCH_TAG = re.compile(r"(?i)(?:.*/)?epoch$")


def lines(scalars: list[Scalar], folder: str) -> str:
    """One JSON object for all scalars of one step that were written together, in the order of their times.

    Tags are turned to the names that programs print: ``Loss/train`` to ``train/loss``, Keras' ``epoch_loss`` in a folder
    ``validation`` to ``val_loss``. Evaluation and training never share a line.
    """
    in_eval = bool(_EVAL_FOLDER.search(folder))
    text = io.StringIO()
    row: dict[str, float] = {}
    key: tuple[int, bool] | None = None
    time = 0.0
    for scalar in sorted(scalars, key=lambda s: s.time):  # a stable sort: scalars of one moment stay in file order
        name = _name(scalar.tag, in_eval)
        this = (scalar.step, bool(_EVAL_TAG.search(name)))
        if key is not None and (this != key or name in row):
            text.write(_line(key[0], time, row))
            row = {}
        key, time = this, scalar.time
        row[name] = scalar.value
    if key is not None and row:
        text.write(_line(key[0], time, row))
    return text.getvalue()


def _name(tag: str, in_eval: bool) -> str:
    tag = tag[:200]
    if m := _REVERSED.fullmatch(tag):
        tag = f"{m[2].lower()}/{m[1].lower()}"
    if _EPOCH_TAG.fullmatch(tag):
        return "epoch"
    tag = re.sub(r"^epoch_(?=\w)", "", tag)
    return f"val_{tag}" if in_eval and not _EVAL_TAG.search(tag) else tag


def _line(step: int, time: float, row: dict[str, float]) -> str:
    values = {name: float(f"{value:.7g}") if math.isfinite(value) else value for name, value in row.items()}  # float32 has 7 digits
    return json.dumps({"timestamp": _moment(time), "step": step, **{n: v for n, v in values.items() if n not in ("timestamp", "step")}}) + "\n"


def _moment(time: float) -> str | None:
    try:
        return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return None
