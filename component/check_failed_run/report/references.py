"""The pages in ``references/``, made from the catalogue, the class descriptions and the report's model.

    python -m check_failed_run.report.references references     writes them; a test holds the checked-in pages to this
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from check_failed_run.catalogue import class_info, exception_rules, signatures
from check_failed_run.catalogue.model import CLASSES, Change, ClassInfo, Fix, Mark, Role, Signature
from check_failed_run.planning.policy import POLICY, risk_of
from check_failed_run.report import model


def pages() -> dict[str, str]:
    """File name to text of every page."""
    makers: dict[str, Callable[[], str]] = {
        "failure-taxonomy.md": taxonomy,
        "root-cause-patterns.md": patterns,
        "vocabulary.md": vocabulary,
        "schemas.md": schemas,
    }
    return {name: make() for name, make in makers.items()}


# --- failure-taxonomy.md ----------------------------------------------------------------------------------------------


def taxonomy() -> str:
    """Each class: what it is and is not, when it appears, its kinds, the signals by which it is known."""
    lines = [
        "# Failure taxonomy", "",
        "Thirteen classes. A report names one as the primary cause: the earliest that explains the rest, never the loudest",
        "consequence. Where the evidence does not decide, it answers `unknown`; where nothing failed, `none`.", "",
        "| class | severity | in short |", "|---|---|---|",
    ]  # fmt: skip
    info = class_info()
    lines += [f"| [{name}](#{name}) | {info[name].severity} | {_cell(info[name].title)} |" for name in CLASSES]
    for name in CLASSES:
        lines += ["", *_taxonomy_class(info[name])]
    return "\n".join(lines) + "\n"


def _taxonomy_class(info: ClassInfo) -> list[str]:
    own = [s for s in signatures() if s.cls == info.id]
    causes = [s for s in own if s.role is Role.CAUSE]
    lines = [f"## {info.id}", "", f"**{info.title}.** {info.is_}", "", f"*Not:* {info.is_not}", "", f"*When:* {info.when}", "", "Kinds:", ""]
    lines += [f"- {kind}" for kind in info.kinds]
    lines += ["", "| signal | kind | printed by | what it establishes |", "|---|---|---|---|"]
    lines += [f"| `{s.id}` | {_cell(s.kind)} | {_cell(s.prints)} | {_cell(s.means)} |" for s in causes]
    for role, title in (
        (Role.CASCADE, "Lines that only follow from something else; they are the primary cause only when nothing else was found"),
        (Role.CONFIRMATION, "Records that confirm a cause or a kill"),
        (Role.CONTEXT, "Facts that explain or contribute, never a failure by themselves"),
    ):
        rows = [s for s in own if s.role is role]
        if rows:
            lines += ["", f"{title}: " + "; ".join(f"`{s.id}` ({s.kind})" for s in rows) + "."]
    rules = [r for r in exception_rules() if r.cls == info.id]
    if rules:
        lines += ["", "Exceptions that no signature knows, by type and place: " + "; ".join(f"`{r.id}` ({r.kind})" for r in rules) + "."]
    if info.settings:
        lines += ["", "By framework:", "", *(f"- {framework}: {settings}" for framework, settings in info.settings)]
    return lines


# --- root-cause-patterns.md -------------------------------------------------------------------------------------------


def patterns() -> str:
    """For each class the procedure, the lines to look for, the settings to check, what to do."""
    lines = [
        "# Root-cause patterns", "",
        "How an expert goes about each class: the order of looking, the lines that decide, the settings to check in each",
        "framework, and what to do. Quoted lines are examples; the patterns themselves take every version's wording.",
    ]  # fmt: skip
    info = class_info()
    for name in CLASSES:
        lines += ["", *_patterns_class(info[name])]
    return "\n".join(lines) + "\n"


def _patterns_class(info: ClassInfo) -> list[str]:
    lines = [f"## {info.id}", "", "Procedure:", ""]
    lines += [f"{number}. {step}" for number, step in enumerate(info.procedure, 1)]
    best = sorted((s for s in signatures() if s.cls == info.id and s.role is Role.CAUSE), key=lambda s: -s.specificity)
    if best:
        lines += ["", "Lines that decide:", ""]
        for signature in best:
            lines += _pattern(signature)
    if info.settings:
        lines += ["", "Settings to check:", "", "| framework | settings |", "|---|---|"]
        lines += [f"| {framework} | {_cell(settings)} |" for framework, settings in info.settings]
    if info.fixes:
        lines += ["", "What to do:", ""]
        lines += [f"- {_fix(fix)}" for fix in info.fixes]
    if info.decides:
        what, why, how = info.decides
        lines += ["", f"What decides when it stays open: {_plain(what)}, which {_plain(why)}: {_code(_plain(how))}"]
    return lines


def _pattern(s: Signature) -> list[str]:
    lines = [f"- **{s.kind}** (`{s.id}`): {s.means}"]
    if s.not_shown:
        lines[0] += f" Not shown: {s.not_shown[0].lower() + s.not_shown[1:]}"
    lines += ["", "  ```", f"  {_one_line(s.matches[0])}", "  ```", ""]
    if s.fixes:
        lines += [f"  First fix: {_fix(s.fixes[0])}", ""]
    return lines


def _fix(fix: Fix) -> str:
    command = f" {_code(_plain(fix.command))}" if fix.command else ""
    return f"{_plain(fix.action)} ({risk_of(fix.change)}; {_plain(fix.impact)}; success: {_plain(fix.validate)}).{command}"


# --- vocabulary.md ----------------------------------------------------------------------------------------------------


def vocabulary() -> str:
    """The words that reports use, each with its meaning."""
    lines = ["# Vocabulary", "", "## Roles of a line", "", "| role | meaning |", "|---|---|"]
    lines += [f"| `{role}` | {text} |" for role, text in _ROLES.items()]
    lines += ["", "## Run status", "", "| status | meaning |", "|---|---|"]
    lines += [f"| `{status}` | {text} |" for status, text in _STATUS.items()]
    lines += ["", "## Retry", "", "| verdict | meaning |", "|---|---|"]
    lines += [f"| `{verdict}` | {text} |" for verdict, text in _RETRY.items()]
    lines += ["", "## Fix policy", "", "What a fix changes decides its risk; a command that does more than its change says is raised.", "", "| change | risk |", "|---|---|"]
    lines += [f"| {change.value} | `{POLICY[change]}` |" for change in Change]
    lines += ["", "## Marks of a log's structure", "", ", ".join(f"`{mark.value}`" for mark in Mark) + ".", "", "## Terms", ""]
    lines += [f"- **{term}**: {text}" for term, text in _TERMS.items()]
    return "\n".join(lines) + "\n"


_ROLES = {
    "cause": "can be the root of the failure",
    "cascade": "follows from something else: time-outs of the other ranks, SIGTERM from the launcher, wrappers",
    "confirmation": "strengthens a cause or a kill of its class: a kernel's record beside a bare kill",
    "context": "explains or contributes; never a failure by itself",
    "advice": "text that only suggests; never evidence",
    "harmless": "looks bad and is not; silences every other match on its line",
    "marker": "structure: start, end, checkpoint, resumption, exit code, command",
}
_STATUS = {
    "crashed": "a process ended with an error or was killed",
    "hung": "no progress and no end",
    "degraded": "it goes on, with results that cannot be trusted or at a fraction of its speed",
    "diverged": "it goes on or ended by itself, and the training is lost",
    "recovered": "a fault was survived: the run went on after it",
    "healthy": "no failure was found",
    "running": "not ended, and making progress",
    "unknown": "what was read does not tell",
}
_RETRY = {
    "retry": "the fault lies outside the program: the same command may be started again",
    "retry-elsewhere": "the same command, on another node, zone or device",
    "change-first": "the same command would fail again",
    "stop": "nobody should start it again before the cause is known",
}
_TERMS = {
    "attempt": "one run of the program from its start; a restart in the same log begins the next",
    "failure point": "the line that first shows the cause itself, not a later consequence",
    "fingerprint": "the same failure gives the same one, whatever the numbers, paths, ranks and dates are",
    "location": "file and line of the innermost frame in the user's own code",
    "loss scale": "the factor of dynamic loss scaling in fp16; halved at each overflow",
    "primary cause": "the class of the earliest fault that explains the rest",
    "proximate cause": "where and how execution failed",
    "rank": "number of a process in the world of a distributed run; the world size is their count",
    "root cause": "why, as far as the evidence goes",
    "step": "one update of the weights; the last completed one where a failure lies between two",
    "task detail": "the record of one task in a pipeline job",
}


# --- schemas.md -------------------------------------------------------------------------------------------------------


def schemas() -> str:
    """The report's parts, field by field, from the dataclasses."""
    lines = [
        "# Schemas", "",
        "`check-failed-run.json` is one object. [check-failed-run.schema.json](check-failed-run.schema.json) is its JSON Schema.",
        "Within major version 1 keys are added, never renamed or retyped.",
    ]  # fmt: skip
    parts = [v for v in vars(model).values() if dataclasses.is_dataclass(v) and isinstance(v, type) and not v.__name__.startswith("_")]
    for part in [model.Report, *(p for p in parts if p is not model.Report)]:
        lines += ["", f"## {part.__name__}", "", *_about(part), "| key | type | default |", "|---|---|---|"]
        for item in dataclasses.fields(part):
            lines.append(f"| `{item.name.rstrip('_')}` | {_cell(str(item.type))} | {_default(item)} |")
    return "\n".join(line for line in lines) + "\n"


def _about(part: type) -> list[str]:
    text = part.__doc__ or ""
    return [] if not text or text.startswith(f"{part.__name__}(") else [" ".join(text.split("\n\n")[0].split()), ""]


def _default(item: dataclasses.Field[Any]) -> str:
    if item.default is not dataclasses.MISSING:
        return f"`{item.default!r}`"
    if item.default_factory is not dataclasses.MISSING:
        return f"`{item.default_factory()!r}`"
    return ""


# --- text -------------------------------------------------------------------------------------------------------------


def _plain(text: str) -> str:
    """A fix template without its optional parts; what a run would fill in stands in capitals."""
    return re.sub(r"\{(\w+)\}", lambda m: m[1].upper(), re.sub(r"\[\[.*?\]\]", "", text)).rstrip(".")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _one_line(text: str) -> str:
    return text.split("\n")[0].replace("```", "'''")


def main(argv: list[str]) -> int:
    if len(argv) != 1:
        print("usage: python -m check_failed_run.report.references FOLDER", file=sys.stderr)
        return 2
    for name, text in pages().items():
        (Path(argv[0]) / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
