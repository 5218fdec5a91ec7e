"""Log files, folders, globs, compressed files and standard input: what they are, decided by content.

Nothing is judged here. A file becomes a log, a configuration, or a skipped input with its reason.
"""

from __future__ import annotations

import bz2
import codecs
import glob
import io
import json
import lzma
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from check_failed_run.record import ConfigFile, LogSource, RunRecord, SkippedInput
from check_failed_run.sources.log_export import MAX_EXPORT, may_be_export, read_export

MAX_FILES = 512  # files taken from one folder
MAX_CONFIG = 2 << 20  # bytes of a configuration that are read
MAX_DEPTH = 8
LOG_SUFFIXES = {".log", ".out", ".err", ".txt", ".jsonl", ".ndjson", ".csv", ".stdout", ".stderr"}
CONFIG_SUFFIXES = {".yaml", ".yml", ".json", ".toml", ".ini", ".cfg"}
PACKED = (".gz", ".bz2", ".xz")
_NEVER = re.compile(r"(?i)\.(?:py|pyc|sh|ipynb|md|rst|html?|css|js|png|jpe?g|gif|pdf|svg|zip|tar|tgz|whl|so|pt|pth|bin|ckpt|safetensors|npy|npz|parquet|arrow|h5|hdf5|keras|pkl|pickle|db|sqlite|tfevents\S*|lock|model|onnx)$")


class InputError(ValueError):
    """The user named something that cannot be used. The message says what to do."""


class NothingToRead(InputError):
    """What was named is there and holds no log line."""


def collect(inputs: Iterable[str], record: RunRecord, *, last: int | None = None) -> None:
    """Add the logs and configurations that ``inputs`` name to ``record``.

    Raises:
        InputError: an input does not exist, or no log is found anywhere.
    """
    for text in inputs:
        record.targets.append(text)
        if text == "-":
            _add_stdin(record, last)
            continue
        paths = _expand(text)
        for path in paths:
            if path.is_dir():
                _add_folder(path, record, last)
            else:
                _add_file(path, str(path) if len(paths) > 1 else text, record, last, named=True)
    if not record.logs:
        reasons = "; ".join(f"{s.input}: {s.reason}" for s in record.skipped[:5])
        if record.configs and not reasons:
            reasons = "only configuration files were named"
        raise NothingToRead(f"no log to read ({reasons or 'nothing was found'}). Name a log file, a folder that holds one, or - for standard input.")


def shorten_names(record: RunRecord) -> None:
    """Show logs by the part of their path that tells them apart: a quote reads ``train.log:12``, not a whole path."""
    files = [log for log in record.logs if "/" in log.name and "://" not in log.name]
    if not files:
        return
    common = os.path.dirname(files[0].name) if len(files) == 1 else os.path.commonpath([os.path.dirname(log.name) or "." for log in files])
    taken = {log.name for log in record.logs if log not in files}
    for log in files:
        short = os.path.relpath(log.name, common) if common else log.name
        if short not in taken:
            log.name = short
            taken.add(short)


def add_text(name: str, text: str, record: RunRecord) -> None:
    """A pasted text (a traceback) as a log of its own."""
    data = text.encode()
    record.logs.append(LogSource(name, lambda: io.BytesIO(data), len(data)))


def _expand(text: str) -> list[Path]:
    path = Path(text)
    if path.exists():
        return [path]
    if glob.has_magic(text):
        found = sorted(Path(p) for p in glob.glob(text, recursive=True))
        if found:
            return found
        raise InputError(f"{text}: no file matches this pattern.")
    if path.is_symlink():
        raise InputError(f"{text}: is a link to {os.readlink(text)}, which does not exist.")
    parent = path.parent if str(path.parent) else Path(".")
    hint = f" The folder {parent} does not exist either." if not parent.exists() else ""
    raise InputError(f"{text}: no such file or folder.{hint} Check the path, or pass - to read standard input.")


def _add_folder(folder: Path, record: RunRecord, last: int | None) -> None:
    before = len(record.logs)
    count = 0
    seen: set[tuple[int, int]] = set()
    for root, folders, files in os.walk(folder, followlinks=False):
        folders[:] = sorted(d for d in folders if not d.startswith(".git") and d not in ("__pycache__", "node_modules", "site-packages"))
        if len(Path(root).relative_to(folder).parts) >= MAX_DEPTH:
            folders[:] = []
        for name in sorted(files):
            path = Path(root) / name
            shown = str(path)
            suffixes = [s for s in path.suffixes if s not in PACKED]
            if _NEVER.search(name) or (suffixes and suffixes[-1] not in LOG_SUFFIXES | CONFIG_SUFFIXES and not re.search(r"(?i)log|out|err|std", name)):
                continue
            try:
                info = path.stat()
            except OSError as error:
                record.skipped.append(SkippedInput(shown, error.strerror or str(error)))
                continue
            if (info.st_dev, info.st_ino) in seen:
                continue
            seen.add((info.st_dev, info.st_ino))
            count += 1
            if count > MAX_FILES:
                record.skipped.append(SkippedInput(str(folder), f"more than {MAX_FILES} files; the rest was not looked at"))
                return
            _add_file(path, shown, record, last, named=False)
    if len(record.logs) == before:
        record.skipped.append(SkippedInput(str(folder), "holds no log (looked for text files by name and content)"))


def _add_file(path: Path, name: str, record: RunRecord, last: int | None, *, named: bool) -> None:
    try:
        info = path.stat()
        if stat.S_ISFIFO(info.st_mode) and named:
            _add_stream(path.open("rb", buffering=0), name, record, last)
            return
        if not stat.S_ISREG(info.st_mode):
            record.skipped.append(SkippedInput(name, "not a regular file"))
            return
        packed = path.suffix.lower() in PACKED
        if info.st_size == 0:
            record.skipped.append(SkippedInput(name, "empty file"))
            return
        with _open(path) as stream:
            head = _read_head(stream, 1 << 16)
    except EOFError as error:
        record.skipped.append(SkippedInput(name, f"cannot be decompressed: {error}"))
        return
    except OSError as error:
        record.skipped.append(SkippedInput(name, error.strerror or str(error)))
        return
    if may_be_export(head) and info.st_size <= MAX_EXPORT and not packed and not last:
        export = read_export(name, path.read_bytes())
        if export is not None:
            record.logs.append(export)
            return
    kind = sniff(head, path.name)
    if kind == "binary":
        record.skipped.append(SkippedInput(name, "binary file, not a log"))
    elif kind == "blank":
        record.skipped.append(SkippedInput(name, "holds only white space"))
    elif kind == "config":
        values = _read_config(path, head, name, record)
        if values is not None:
            record.configs.append(ConfigFile(name, tuple(values.items())))
        elif named:
            record.logs.append(_source(path, name, None if packed else info.st_size, head, last))
    else:
        record.logs.append(_source(path, name, None if packed else info.st_size, head, last))


def _add_stdin(record: RunRecord, last: int | None) -> None:
    if sys.stdin is None or (sys.stdin.isatty() if hasattr(sys.stdin, "isatty") else False):
        raise InputError("standard input is a terminal. Pipe a log into it: cat train.log | check-failed-run -")
    _add_stream(getattr(sys.stdin, "buffer", sys.stdin), "<stdin>", record, last)


def _add_stream(stream: Any, name: str, record: RunRecord, last: int | None) -> None:
    head = stream.read(1 << 16)
    if not head:
        record.skipped.append(SkippedInput(name, "empty input"))
        return
    kind = sniff(head, name)
    if kind == "binary" and head[:2] == b"\x1f\x8b":
        stream, head = _Unpacked(_Joined(head, stream), ".gz"), b""
    elif kind in ("binary", "blank"):
        record.skipped.append(SkippedInput(name, "binary input, not a log" if kind == "binary" else "holds only white space"))
        return
    joined = _Joined(head, stream)
    opener = (lambda: _LastLines(_decoded(joined, head), last)) if last else (lambda: _decoded(joined, head))
    record.logs.append(LogSource(name, opener, None, seekable=False))


def _open(path: Path) -> Any:
    stream = path.open("rb", buffering=0)
    suffix = path.suffix.lower()
    return _Unpacked(stream, suffix) if suffix in PACKED else stream


def _read_head(stream: Any, size: int) -> bytes:
    """Up to ``size`` bytes; what a truncated archive still gives, if anything."""
    head = b""
    while len(head) < size:
        try:
            piece = stream.read(size - len(head))
        except EOFError:
            if head:
                break
            raise
        if not piece:
            break
        head += piece
    return head


def _source(path: Path, name: str, size: int | None, head: bytes, last: int | None) -> LogSource:
    def opener():
        stream = _decoded(_open(path), head)
        return _LastLines(stream, last) if last else stream

    return LogSource(name, opener, size, rank=rank_of_name(path.name), attempt=attempt_of_name(path.name))


def rank_of_name(name: str) -> int | None:
    """The rank that a per-rank log's name carries: rank3.log, worker-2.out, train_rank_00.log, 3/stderr.log is not guessed."""
    m = re.search(r"(?i)(?:^|[^a-z])(?:rank|worker|task|proc|process)[_.-]?(\d{1,5})(?=\D|$)", name)
    return int(m[1]) if m else None


def attempt_of_name(name: str) -> int | None:
    m = re.search(r"(?i)(?:attempt|try|restart|run)[_.-]?(\d{1,3})(?=\D|$)", name)
    return int(m[1]) if m else None


def sniff(head: bytes, name: str) -> str:
    """"log", "config", "binary" or "blank", by content first and name second."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or head[:3] == b"\xef\xbb\xbf" or _utf16_without_bom(head):
        return "log"
    if head.count(b"\0") > len(head) // 200 or head[:4] in (b"PK\x03\x04", b"\x7fELF", b"\x89PNG", b"%PDF") or head[:2] == b"\x1f\x8b":
        return "binary"
    control = sum(head.count(bytes([c])) for c in (1, 2, 3, 4, 5, 6, 14, 15, 16, 17, 18, 19, 20))
    if control > max(8, len(head) // 20):
        return "binary"
    if not head.strip():
        return "blank"
    suffix = Path(name).suffix.lower()
    if suffix in (".yaml", ".yml", ".toml", ".ini", ".cfg"):
        return "config"
    if suffix == ".json" and head.lstrip()[:1] in (b"{", b"["):
        return "config"
    return "log"


def _utf16_without_bom(head: bytes) -> bool:
    return len(head) > 64 and (head[1::2].count(0) > len(head) * 0.4 or head[0::2].count(0) > len(head) * 0.4)


def _read_config(path: Path, head: bytes, name: str, record: RunRecord) -> dict[str, Any] | None:
    """Flat dotted keys of a configuration file; None where it holds no mapping (it may be a log after all)."""
    try:
        return load_config(path.name, path.read_bytes()[:MAX_CONFIG] if path.suffix not in PACKED else head)
    except (ValueError, OSError) as error:
        record.skipped.append(SkippedInput(name, f"not readable as configuration: {str(error).splitlines()[0][:120]}"))
        return None


def parse_config(name: str, data: bytes) -> dict[str, Any] | None:
    """As :func:`load_config`, and None where the text cannot be read."""
    try:
        return load_config(name, data)
    except ValueError:
        return None


def load_config(name: str, data: bytes) -> dict[str, Any] | None:
    """Flat dotted keys of a configuration by its name's ending; None where it holds no mapping.

    Raises:
        ValueError: it is no valid JSON, TOML, INI or YAML.
    """
    text = data.decode("utf-8", "replace")
    suffix = Path(name).suffix.lower()
    try:
        if suffix == ".json":
            loaded = json.loads(text)
        elif suffix == ".toml":
            import tomllib

            loaded = tomllib.loads(text)
        elif suffix in (".ini", ".cfg"):
            import configparser

            parser = configparser.ConfigParser(interpolation=None)
            parser.read_string(text)
            loaded = {section: dict(parser[section]) for section in parser.sections()}
        else:
            loaded = read_simple_yaml(text)
    except ValueError:
        raise
    except Exception as error:  # configparser has an error tree of its own, and any parser may give up on deep nesting
        raise ValueError(type(error).__name__) from None
    return flatten(loaded) if isinstance(loaded, dict) else None


def flatten(value: Any, prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Nested mappings as dotted keys; at most 2,000 of them; lists are kept as short strings."""
    flat: dict[str, Any] = {}
    for key, item in value.items():
        name = f"{prefix}{key}"
        if isinstance(item, dict) and depth < 8:
            flat.update(flatten(item, f"{name}.", depth + 1))
        elif isinstance(item, list | tuple):
            flat[name] = str(item)[:200]
        else:
            flat[name] = item
        if len(flat) > 2000:
            break
    return flat


def read_simple_yaml(text: str) -> dict[str, Any]:
    """The scalars of a YAML mapping, by indentation: enough for hparams.yaml, config.yaml and the like.

    A YAML library would be loaded for every local run and could be asked to build objects; only scalars
    are needed here. Anchors, tags and block scalars are left out.
    """
    root: dict[str, Any] = {}
    stack: list[tuple[int, dict[str, Any]]] = [(-1, root)]
    for line in text.splitlines():
        m = re.match(r"^(\s*)(?:- )?([\w.\-/]+):(?:\s+(.*))?$", line)
        if not m or line.lstrip().startswith("#"):
            continue
        indent, key, rest = len(m[1]), m[2], (m[3] or "").strip()
        rest = re.sub(r"\s+#.*$", "", rest)
        while stack[-1][0] >= indent:
            stack.pop()
        if rest == "" or rest.startswith(("&", "!", "|", ">")):
            child: dict[str, Any] = {}
            stack[-1][1][key] = child
            stack.append((indent, child))
        else:
            stack[-1][1][key] = scalar(rest)
    return root


def scalar(text: str) -> Any:
    """A YAML/CLI scalar as int, float, bool, None or str."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    lower = text.lower()
    if lower in ("true", "false"):
        return lower == "true"
    if lower in ("null", "none", "~"):
        return None
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


class _Joined(io.RawIOBase):
    """A stream with its already read head put back."""

    def __init__(self, head: bytes, stream: Any):
        self._head, self._stream = head, stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._head:
            count = min(len(buffer), len(self._head))
            buffer[:count] = self._head[:count]
            self._head = self._head[count:]
            return count
        if hasattr(self._stream, "readinto1"):
            return self._stream.readinto1(buffer)
        return self._stream.readinto(buffer) or 0


class _Unpacked(io.RawIOBase):
    """A gzip, bzip2 or xz stream, piece by piece.

    Unlike the readers of the standard library's file classes it hands out everything that a truncated
    archive still holds before it raises EOFError.
    """

    def __init__(self, stream: Any, suffix: str):
        self._stream = stream
        self._new = {".gz": lambda: zlib.decompressobj(31), ".bz2": bz2.BZ2Decompressor, ".xz": lzma.LZMADecompressor}[suffix]
        self._engine = self._new()
        self._errors = (zlib.error, OSError, lzma.LZMAError)
        self._packed = b""
        self._started = False

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._stream.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        while True:
            if self._engine.eof:
                rest = (self._engine.unused_data or self._packed or self._stream.read(1 << 16)).lstrip(b"\0")
                if not rest:
                    return 0
                self._engine, self._packed = self._new(), rest
            if not self._packed and getattr(self._engine, "needs_input", True):
                self._packed = self._stream.read(1 << 16)
                if not self._packed:
                    raise EOFError("the archive ends before its end marker: it was cut")
            try:
                data = self._engine.decompress(self._packed, len(buffer))
            except self._errors as error:
                raise EOFError(f"the archive is damaged: {error}") from None
            self._packed = getattr(self._engine, "unconsumed_tail", b"")
            if data:
                buffer[: len(data)] = data
                return len(data)


class _Transcoded(io.RawIOBase):
    """UTF-16 or UTF-32 as UTF-8, piece by piece."""

    def __init__(self, stream: Any, encoding: str):
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            piece = self._stream.read(1 << 16)
            text = self._decoder.decode(piece or b"", final=not piece)
            self._ready = text.encode("utf-8", "replace")
            if not piece:
                break
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


def _decoded(stream: Any, head: bytes) -> Any:
    """``stream`` as UTF-8 bytes, whatever its byte order mark says."""
    if head[:4] in (b"\xff\xfe\0\0", b"\0\0\xfe\xff"):
        return _Transcoded(stream, "utf-32")
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return _Transcoded(stream, "utf-16")
    if _utf16_without_bom(head):
        return _Transcoded(stream, "utf-16-le" if head[1:2] == b"\0" else "utf-16-be")
    return stream


class _LastLines(io.RawIOBase):
    """The last ``count`` lines of a stream; ``skipped`` is how many lines and bytes came before them.

    Regular files are read from the back; anything else is read through a ring.
    """

    def __init__(self, stream: Any, count: int):
        self._stream, self._count = stream, count
        self.skipped_lines = self.skipped_bytes = 0
        self._ready: io.BytesIO | None = None

    def readable(self) -> bool:
        return True

    def prepare(self) -> None:
        ring = bytearray()
        limit = max(1 << 20, self._count * 512)
        while True:
            try:
                piece = self._stream.read(1 << 20)
            except EOFError:
                break
            if not piece:
                break
            ring += piece
            if len(ring) > 4 * limit:
                self._trim(ring)
        self._trim(ring)
        self._ready = io.BytesIO(bytes(ring))

    def _trim(self, ring: bytearray) -> None:
        cut = len(ring)
        for _ in range(self._count + (1 if ring.endswith(b"\n") else 0)):
            cut = ring.rfind(b"\n", 0, cut)
            if cut < 0:
                return
        cut += 1
        self.skipped_lines += ring.count(b"\n", 0, cut)
        self.skipped_bytes += cut
        del ring[:cut]

    def readinto(self, buffer: Any) -> int:
        if self._ready is None:
            self.prepare()
        return self._ready.readinto(buffer)
