"""Sanity checks of data sets found among a run's artifacts, against the column that is to be predicted.

DuckDB reads CSV, Parquet and lines of JSON, with a limit on its memory and no access to anything but the file in hand. A
bounded sample is looked at. What is found becomes lines of a log named ``data-checks``; signatures of the catalogue
(``data_checks``) say what they mean.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from check_failed_run.record import LogSource, RunRecord, SkippedInput

SAMPLE_ROWS = 200_000  # rows of one split
MAX_FILES = 16  # files of one split
MAX_SPLITS = 24
MAX_COLUMNS = 500  # columns that are compared with the label
MEMORY = "300MB"
MIN_ROWS = 10  # fewer rows show nothing
LOG_NAME = "data-checks"
ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".jsonl", ".ndjson", ".jsonl.gz")

_SPLIT = re.compile(r"(?i)(?:^|[/_.-])(train(?:ing)?|val(?:id(?:ation)?)?|dev|eval(?:uation)?|test(?:ing)?|holdout)(?=$|[/_.-]|\d)")
_SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test", "holdout": "test"}
_NO_DATA = re.compile(r"(?i)(?:^|[/_.-])(?:metrics?|results?|logs?|history|predictions?|preds|submission|events?|hparams|progress|loss(?:es)?|scores?)(?=$|[/_.-]|\d)")
_INDEX_LIKE = re.compile(r"(?i)(?:|id|idx|index|uuid|guid|row|row_?(?:id|num|number)|sample_?id|example_?id|unnamed: ?\d+|column0+|__index_level_\d+__)")
_NUMERIC = re.compile(r"(?:TINY|SMALL|BIG|HUGE|U\w+)?INT(?:EGER)?|FLOAT|DOUBLE|REAL|DECIMAL.*|INTEGER")
_SCALAR = re.compile(_NUMERIC.pattern + r"|VARCHAR|BOOLEAN|DATE|TIMESTAMP.*|ENUM.*")


class MissingLibrary(ImportError):
    """duckdb is not installed."""


@dataclass(slots=True)
class _Split:
    """Files of one part of the data, read into one table."""

    name: str
    table: str
    named: bool  # the path says which part it is
    columns: dict[str, str] = field(default_factory=dict)  # name to type
    rows: int = 0


def is_data(name: str) -> bool:
    """Whether a path may be a data set: by its ending, and not named as metrics or predictions are."""
    return name.lower().endswith(ENDINGS) and not _NO_DATA.search(name)


def check_data(paths: Iterable[Path | str], target: str, record: RunRecord) -> None:
    """Check data sets; findings are added to ``record.logs`` as ``data-checks``, what cannot be read to ``record.skipped``.

    Args:
        paths: files; those with other endings than :data:`ENDINGS` are left out.
        target: the column that is to be predicted.
        record: ``record.configs`` give the number of classes.

    Raises:
        MissingLibrary: duckdb is not installed (extra ``data``).
    """
    groups = _grouped([Path(p) for p in paths])
    if not groups:
        record.skipped.append(SkippedInput(f"--target {target}", "no data set was found (looked for CSV, Parquet and lines of JSON)"))
        return
    try:
        import duckdb
    except ImportError as error:
        raise MissingLibrary(error.name) from None
    splits = []
    with _connection(duckdb) as db:
        for n, (name, (named, files)) in enumerate(sorted(groups.items())[:MAX_SPLITS]):
            split = _Split(name, f"split{n}", named)
            for path in files[:MAX_FILES]:
                _load(db, duckdb, path, split, SAMPLE_ROWS // min(len(files), MAX_FILES), record)
            if split.columns:
                splits.append(split)
        lines: list[str] = []
        try:
            lines = _findings(db, splits, target, _classes(record), record)
        except duckdb.Error as error:
            record.skipped.append(SkippedInput(LOG_NAME, f"not all checks could be made: {_plain(str(error))}"))
    if lines:
        data = "".join(f"data check: {line}\n" for line in lines).encode()
        record.logs.append(LogSource(LOG_NAME, lambda: io.BytesIO(data), len(data)))
    record.environment.setdefault("data_checked", {s.name: s.rows for s in splits})


def _grouped(paths: list[Path]) -> dict[str, tuple[bool, list[Path]]]:
    """Files by the part of the data that their path names; one that names none stands for itself."""
    common = os.path.commonpath([p.parent for p in paths]) if paths else ""
    groups: dict[str, tuple[bool, list[Path]]] = {}
    for path in sorted(paths):
        relative = os.path.relpath(path, common).replace(os.sep, "/") if common else str(path)
        if not is_data(relative):
            continue
        found = _SPLIT.findall(relative)
        name = _SPLITS.get(found[-1].lower(), "validation") if found else relative
        groups.setdefault(name, (bool(found), []))[1].append(path)
    return groups


def _connection(duckdb: Any) -> Any:
    """A database in memory that can neither grow without limit nor fetch anything."""
    return duckdb.connect(
        ":memory:",
        config={
            "memory_limit": MEMORY, "threads": "1", "temp_directory": "", "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false", "allow_community_extensions": "false", "preserve_insertion_order": "true",
        },
    )  # fmt: skip


_READERS = (
    ((".csv", ".csv.gz", ".tsv", ".tsv.gz"), "read_csv(?, sample_size=50000, ignore_errors=true, max_line_size=1000000)"),
    ((".parquet",), "read_parquet(?)"),
    ((".jsonl", ".ndjson", ".jsonl.gz"), "read_ndjson(?, sample_size=50000, ignore_errors=true, maximum_object_size=16000000)"),
)


def _load(db: Any, duckdb: Any, path: Path, split: _Split, rows: int, record: RunRecord) -> None:
    shown = str(path)
    if re.search(r"[*?\[\]{}]", shown):
        record.skipped.append(SkippedInput(shown, "its name holds wildcard characters: rename it to have it checked"))
        return
    reader = next(text for endings, text in _READERS if path.name.lower().endswith(endings))
    part = f"SELECT * FROM {reader} LIMIT {rows}"
    try:
        if split.columns:
            db.execute(f"CREATE TABLE next AS {part}", [shown])
            db.execute(f"CREATE TABLE joined AS SELECT * FROM {split.table} UNION ALL BY NAME SELECT * FROM next")
            db.execute(f"DROP TABLE next; DROP TABLE {split.table}; ALTER TABLE joined RENAME TO {split.table}")
        else:
            db.execute(f"CREATE TABLE {split.table} AS {part}", [shown])
    except (duckdb.Error, UnicodeError, ValueError) as error:
        db.execute("DROP TABLE IF EXISTS next; DROP TABLE IF EXISTS joined")
        record.skipped.append(SkippedInput(shown, f"cannot be read as a table: {_plain(str(error))}"))
        return
    described = db.execute(f"DESCRIBE {split.table}").fetchall()
    split.columns = {row[0]: row[1] for row in described}
    split.rows = db.execute(f"SELECT count(*) FROM {split.table}").fetchone()[0]


def _plain(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:160]


def _shown(name: str) -> str:
    return f"'{''.join(c if c.isprintable() else '?' for c in name)[:60]}'"


def _quoted(name: str) -> str:
    """An SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def _classes(record: RunRecord) -> int | None:
    """The number of classes that a configuration gives: num_labels and its like, or how many labels id2label names."""
    for config in record.configs:
        for name, value in config.values:
            if name.split(".")[-1] in ("num_labels", "num_classes", "n_classes", "num_class") and isinstance(value, int) and not isinstance(value, bool) and value > 1:
                return value
    for config in record.configs:
        named = {name for name, _ in config.values if re.fullmatch(r"(?:.*\.)?id2label\.\d+", name)}
        if len(named) > 1:
            return len(named)
    return None


# --- the checks


def _findings(db: Any, splits: list[_Split], target: str, classes: int | None, record: RunRecord) -> list[str]:
    lines: list[str] = []
    with_label = [s for s in splits if target in s.columns]
    for split in splits:
        if target not in split.columns:
            if split.name != "test" and (split.named or not with_label):
                names = ", ".join(_shown(c) for c in list(split.columns)[:8]) + (", ..." if len(split.columns) > 8 else "")
                lines.append(f"{split.name}: the label column {_shown(target)} is missing (columns: {names})")
            continue
        if split.rows < MIN_ROWS:
            record.skipped.append(SkippedInput(split.name, f"only {split.rows} rows: too few to check"))
            continue
        lines += _label(db, split, target, classes)
        lines += _not_finite(db, split, target)
        lines += _equal_features(db, split, target)
    lines += _shared_rows(db, splits, target)
    return lines


def _one(db: Any, query: str) -> tuple:
    return db.execute(query).fetchone()


def _label(db: Any, split: _Split, target: str, classes: int | None) -> list[str]:
    lines = []
    column, type_ = _quoted(target), split.columns[target]
    table = split.table
    if type_.endswith("[]"):
        table, column, type_ = f"(SELECT unnest({column}) AS v FROM {split.table})", "v", type_.removesuffix("[]")
    total, missing, distinct = _one(db, f"SELECT count(*), count(*) - count({column}), count(DISTINCT {column}) FROM {table}")
    if missing:
        lines.append(f"{split.name}: the label {_shown(target)} is empty in {missing:,} of {total:,} rows")
    if distinct == 1 and total - missing >= MIN_ROWS:
        value = _one(db, f"SELECT any_value({column})::VARCHAR FROM {table}")[0]
        lines.append(f"{split.name}: the label {_shown(target)} has one class only: {_shown(str(value))} in all {total - missing:,} rows")
    if classes is None:
        return lines
    if _NUMERIC.fullmatch(type_):
        outside, low, high = _one(
            db, f"SELECT count(*), min({column}), max({column}) FROM {table} WHERE ({column} < 0 OR {column} >= {int(classes)}) AND {column} <> -100"  # noqa: S608
        )
        if outside and not (split.name == "test" and low == high == -1):  # hidden labels of a public test split
            values = f"{low:g}" if low == high else f"{low:g} to {high:g}"
            lines.append(f"{split.name}: the label {_shown(target)} holds {values}, outside of the {classes} classes 0..{classes - 1} of the configuration ({outside:,} of {total:,} rows)")
    elif distinct > classes:
        lines.append(f"{split.name}: the label {_shown(target)} has {distinct:,} classes, the configuration {classes}")
    return lines


def _not_finite(db: Any, split: _Split, target: str) -> list[str]:
    floats = [c for c, t in split.columns.items() if t in ("DOUBLE", "FLOAT", "REAL")][:MAX_COLUMNS]
    if not floats:
        return []
    parts = ", ".join(f"count(*) FILTER (isnan({_quoted(c)})), count(*) FILTER (isinf({_quoted(c)}))" for c in floats)
    counts = _one(db, f"SELECT {parts} FROM {split.table}")
    found = [(c, counts[2 * n], counts[2 * n + 1]) for n, c in enumerate(floats) if counts[2 * n] or counts[2 * n + 1]]
    lines = []
    for column, nan, inf in found[:20]:
        what = " and ".join(f"{count:,} {word}" for count, word in ((nan, "NaN"), (inf, "Inf")) if count)
        kind = "the label" if column == target else "column"
        lines.append(f"{split.name}: {kind} {_shown(column)} holds {what} values in {split.rows:,} rows")
    if len(found) > 20:
        lines.append(f"{split.name}: {len(found) - 20} more columns hold NaN or Inf values")
    return lines


def _equal_features(db: Any, split: _Split, target: str) -> list[str]:
    """Features that are the label: equal, in another spelling (one to one), or a linear function of it."""
    label_type = split.columns[target]
    label = _quoted(target)
    if not _SCALAR.fullmatch(label_type):
        return []
    classes, rows = _one(db, f"SELECT count(DISTINCT {label}), count({label}) FROM {split.table}")
    if classes < 2 or rows < 2 * MIN_ROWS:
        return []
    lines = []
    for column, type_ in list(split.columns.items())[:MAX_COLUMNS]:
        if column == target or not _SCALAR.fullmatch(type_):
            continue
        feature = _quoted(column)
        numbers = bool(_NUMERIC.fullmatch(type_) and _NUMERIC.fullmatch(label_type))
        unequal = f"{feature} IS DISTINCT FROM {label}" if numbers else f"{feature}::VARCHAR IS DISTINCT FROM {label}::VARCHAR"
        if not _one(db, f"SELECT count(*) FROM {split.table} WHERE {unequal} AND {label} IS NOT NULL")[0]:
            lines.append(f"{split.name}: the feature {_shown(column)} equals the label {_shown(target)} in all {rows:,} rows")
        elif numbers and classes > 10 and _linear(db, split, feature, label):
            lines.append(f"{split.name}: the feature {_shown(column)} is a multiple of the label {_shown(target)} in all {rows:,} rows")
        elif classes <= rows // 10 and _one_to_one(db, split, feature, label, classes):
            lines.append(f"{split.name}: the feature {_shown(column)} is the label {_shown(target)} in other words ({classes} values, one to one)")
    return lines[:20]


def _linear(db: Any, split: _Split, feature: str, label: str) -> bool:
    finite = f"isfinite({feature}::DOUBLE) AND isfinite({label}::DOUBLE)"
    count, total, r = _one(db, f"SELECT count(*) FILTER ({finite}), count(*), corr({feature}::DOUBLE, {label}::DOUBLE) FILTER ({finite}) FROM {split.table}")
    return r is not None and count == total and abs(r) > 1 - 1e-9


def _one_to_one(db: Any, split: _Split, feature: str, label: str, classes: int) -> bool:
    values, pairs, empty = _one(db, f"SELECT count(DISTINCT {feature}), count(DISTINCT ({feature}, {label})), count(*) FILTER ({feature} IS NULL AND {label} IS NOT NULL) FROM {split.table}")
    return empty == 0 and values == classes == pairs


def _shared_rows(db: Any, splits: list[_Split], target: str) -> list[str]:
    """Rows of validation and test that are also in train, by all columns but the label and row numbers."""
    train = next((s for s in splits if s.name == "train"), None)
    if train is None:
        return []
    lines = []
    for split in splits:
        if split.name not in ("validation", "test") or split.rows < MIN_ROWS:
            continue
        columns = [c for c in train.columns if c in split.columns and c != target and not _INDEX_LIKE.fullmatch(c)]
        if not columns:
            continue
        row = "hash(" + ", ".join(f"{_quoted(c)}::VARCHAR" for c in columns) + ")"
        shared = _one(db, f"SELECT count(*) FROM {split.table} WHERE {row} IN (SELECT {row} FROM {train.table})")[0]
        # tables of few values repeat themselves: rows in common are then no sign of a leak
        repeated = 1 - _one(db, f"SELECT count(DISTINCT {row}) FROM {train.table}")[0] / max(train.rows, 1)
        if shared >= 5 and shared / split.rows > max(0.005, 2 * repeated):
            what = "all columns" if target not in split.columns else "all columns but the label"
            lines.append(f"{split.name} shares {shared:,} of its {split.rows:,} rows with train ({what} are equal)")
    return lines
