"""Reports to files: whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

from check_failed_run.report.model import Report

REPORT_NAME = "check-failed-run.json"


class PublishError(Exception):
    """A report could not be written. The message says what to do."""


_ADVICE = {
    errno.EACCES: "no permission to write there; choose another folder with --out-dir",
    errno.EPERM: "no permission to write there; choose another folder with --out-dir",
    errno.EROFS: "the file system is read-only; choose a writable folder with --out-dir",
    errno.ENOSPC: "no space left on the device; free some or choose another folder with --out-dir",
    errno.EDQUOT: "the disk quota is used up; free some or choose another folder with --out-dir",
    errno.ENOTDIR: "a part of the path is a file; choose another folder with --out-dir",
    errno.EEXIST: "a file of that name is in the way; choose another folder with --out-dir",
    errno.EISDIR: "a folder of that name is in the way; choose another folder with --out-dir",
    errno.ENAMETOOLONG: "the path is too long; choose a shorter one with --out-dir",
    errno.ESTALE: "the network file system lost the folder; mount it again or choose another with --out-dir",
}


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write ``text`` (UTF-8) to ``path`` at once: a reader sees the old file or the new one, never half of it.

    Raises:
        PublishError: the folder cannot be made or written.
    """
    target = Path(path)
    temporary: str | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes files for their owner alone; a report is as readable as any other file of the run.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        advice = _ADVICE.get(error.errno or 0, (error.strerror or str(error)) + "; choose another folder with --out-dir")
        raise PublishError(f"cannot write {target}: {advice}") from error
    return target


def to_json(report: Report | dict[str, Any]) -> str:
    """The report as JSON text: keys in the order of the model, dictionaries of free keys sorted, no NaN."""
    data = report.to_dict() if isinstance(report, Report) else report
    for key in ("environment", "metrics"):
        if isinstance(data.get(key), dict):
            data = data | {key: _sorted(data[key])}
    return json.dumps(_finite(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_report(report: Report | dict[str, Any], out_dir: str | os.PathLike[str], name: str = REPORT_NAME) -> Path:
    """Write the report into ``out_dir``, which is made when it is not there. Returns the file's path."""
    return write_text(Path(out_dir) / name, to_json(report))


def _sorted(value: Any) -> Any:
    return {key: _sorted(value[key]) for key in sorted(value, key=str)} if isinstance(value, dict) else value


def _finite(value: Any) -> Any:
    """Plain JSON values; NaN and infinities as strings, everything unknown as text."""
    if isinstance(value, bool | str | int) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_finite(item) for item in value), key=str)
    return str(value)
