"""The KFP component: how a pipeline gets it, and what it does in its container.

In a pipeline::

    from check_failed_run.component import exit_handler

    with dsl.ExitHandler(exit_handler()):
        ...

or around the whole function (:func:`with_exit_handler`)::

    @dsl.pipeline
    @with_exit_handler()
    def training(): ...

The compiled component runs ``python3 -m check_failed_run.component --status ... --report ...`` in the image;
that is :func:`run_in_container`. It exits 0 whatever it finds, since a failing exit task would fail a run
whose body succeeded. kfp is imported only by :func:`exit_handler`.
"""

from __future__ import annotations

import functools
import json
import os
import re
import selectors
import shlex
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from check_failed_run.record import MissingEvidence, RunRecord, SkippedInput
from check_failed_run.report.model import FailedTask, Missing, Pipeline, Report, Skipped

if TYPE_CHECKING:
    from kfp import dsl

    from check_failed_run.sources.kubeflow import FinalStatus

IMAGE = "check-failed-run:0.1.0"
"""Image of the component. An exit task may depend on nothing, so its image is fixed when the pipeline is compiled."""
IMAGE_ENV = "CHECK_FAILED_RUN_IMAGE"  # overrides IMAGE when compiling
COMMAND = ("python3", "-m", "check_failed_run.component")
DEADLINE = 600.0  # seconds
CLOUD_SHARE = 0.7  # of the deadline, for calls of cloud APIs; the rest is for the diagnosis itself
OUTPUT_PARAMETERS = ("primary_cause", "confidence", "decision", "retry", "fingerprint")

NO_PAGE = "<!doctype html><html lang=en><title>check-failed-run</title><p>The page could not be made. The card and the report hold the diagnosis.</p></html>\n"

_PLACEHOLDER = "{{$"
_VERTEX_JOB = re.compile(r"^projects/[\w.:-]{1,100}/locations/[\w-]{1,60}/pipelineJobs/[\w.-]{1,200}$")
_OWN_FOLDER = re.compile(r"/[^/]+_(?P<id>-?\d{6,})/[^/]+$")  # {task name}_{task id}/{output}, in the pipeline root


def image() -> str:
    """The image that a pipeline compiled now will use."""
    return os.environ.get(IMAGE_ENV) or IMAGE


def exit_handler(*, image: str | None = None, **params: str) -> dsl.PipelineTask:
    """The task for ``dsl.ExitHandler(...)``, with caching off. Needs kfp.

    Args:
        image: the component's image; ``CHECK_FAILED_RUN_IMAGE`` or the released one when absent.
        params: ``job``, ``artifacts``, ``logs``, ``framework``, ``task``, ``run_id``, ``deadline_seconds``;
            each a plain string or a pipeline parameter.

    Raises:
        TypeError: a value is a list or a dict. Vertex AI hands those over with placeholders left in them.
    """
    from check_failed_run import component
    from check_failed_run.kfp_component import check_failed_run

    for name, value in params.items():
        if isinstance(value, list | dict | tuple):
            raise TypeError(f"{name}: give a plain string or a pipeline parameter, not a {type(value).__name__}")
    task = check_failed_run(**{name: str(value) if isinstance(value, int | float) else value for name, value in params.items()})
    task.set_container_image(image or component.image())
    return task.set_caching_options(False)


def with_exit_handler(*, image: str | None = None, **params: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator below ``@dsl.pipeline``: the whole function stands under the exit handler. Takes what :func:`exit_handler` takes."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def under(*args: Any, **kwargs: Any) -> Any:
            from kfp import dsl

            with dsl.ExitHandler(exit_handler(image=image, **params)):
                return function(*args, **kwargs)

        return under

    return decorate


# ---------------------------------------------------------------------------------------------- in the container


@dataclass(frozen=True, slots=True)
class Request:
    """What the exit task was asked."""

    status: str = ""
    job: str = ""
    job_name: str = ""
    job_id: str = ""
    pipeline_root: str = ""
    artifacts: str = ""
    logs: str = ""
    framework: str = ""
    task: str = ""
    run_id: str = ""
    own: str = ""  # a path in our own output folder
    seconds: float = DEADLINE
    gaps: tuple[tuple[str, str], ...] = field(default=())  # (input, reason) of values that were refused


def run_in_container(
    *,
    status: str = "",
    job: str = "",
    job_name: str = "",
    job_id: str = "",
    pipeline_root: str = "",
    artifacts: str = "",
    logs: str = "",
    framework: str = "",
    task: str = "",
    run_id: str = "",
    deadline: float | str = DEADLINE,
    report: str = "",
    card: str = "",
    page: str = "",
    primary_cause: str = "",
    confidence: str = "",
    decision: str = "",
    retry: str = "",
    fingerprint: str = "",
) -> int:
    """Diagnose the run that this exit task belongs to, write the outputs, print the text report; always 0.

    The diagnosis runs in a child process, so that neither a deadline nor the kernel's OOM killer nor a
    crash keeps the report from being written.

    Args:
        status: the PipelineTaskFinalStatus as JSON; "" when there is none.
        job: pipeline job resource name; from ``status`` when empty.
        job_name: ``{{$.pipeline_job_name}}``; on a local run also the name of the run's folder.
        job_id: ``{{$.pipeline_job_uuid}}``, the run's id on open-source Kubeflow Pipelines.
        pipeline_root: ``{{$.pipeline_root}}``.
        artifacts: folder of the run's files, instead of the run's folder below ``pipeline_root``.
        logs: further log files or folders, separated by commas.
        framework, task, run_id: as on the command line.
        deadline: seconds until a report of what is known is written.
        report, card, page: paths of the output artifacts.
        primary_cause, confidence, decision, retry, fingerprint: paths of the output parameters.
    """
    started = time.monotonic()
    request = Request()
    paths = {
        "primary_cause": primary_cause,
        "confidence": confidence,
        "decision": decision,
        "retry": retry,
        "fingerprint": fingerprint,
    }
    try:
        values = {
            "status": status,
            "job": job,
            "job_name": job_name,
            "job_id": job_id,
            "pipeline_root": pipeline_root,
            "artifacts": artifacts,
            "logs": logs,
            "framework": framework,
            "task": task,
            "run_id": run_id,
        }
        request = _request(values, own=report or card)
        seconds, gap = _seconds(deadline)
        if gap:
            request = _with_gap(request, "deadline", gap)
        answer = _in_child(replace(request, seconds=seconds), seconds)
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    try:
        if "report" not in answer:
            answer = _fallback(request, answer, time.monotonic() - started)
        body = answer["report"]
        _write(report, json.dumps(body, indent=2, ensure_ascii=False) + "\n")
        _write(card, answer["card"])
        _write(page, answer.get("page") or NO_PAGE)
        for name, path in paths.items():
            _write(path, str(body.get(name) or ""))
        print(answer["text"].rstrip("\n"), flush=True)
    except Exception as error:  # nothing is left to try; the run's own verdict must stand
        print(f"check-failed-run: no report could be written: {type(error).__name__}: {error}", file=sys.stderr)
    return 0


def main(argv: list[str] | None = None) -> int:
    """``--name value`` pairs of :func:`run_in_container`. A value may start with a dash, so this is no argparse."""
    argv = sys.argv[1:] if argv is None else argv
    if argv[:1] in (["-h"], ["--help"]):
        print("usage: python3 -m check_failed_run.component --status JSON --report PATH --card PATH ...\n\n" + (run_in_container.__doc__ or ""))
        return 0
    known = set(run_in_container.__kwdefaults__ or ())
    values: dict[str, str] = {}
    for name, value in zip(argv[::2], argv[1::2], strict=False):
        key = name.removeprefix("--").replace("-", "_")
        if name.startswith("--") and key in known:
            values[key] = value
        else:
            print(f"check-failed-run: {name}: unknown option, ignored", file=sys.stderr)
    return run_in_container(**values)


def _request(values: dict[str, str], own: str) -> Request:
    kept, gaps = {}, []
    for name, value in values.items():
        text = str(value or "")
        # Vertex AI leaves pipeline parameters inside lists and dicts unresolved; the text is no path and no name then.
        if name != "status" and _PLACEHOLDER in text:
            gaps.append((name, f"still holds a placeholder that the backend did not fill in ({text[:80]}); give it as a plain string input"))
            text = ""
        kept[name] = text.strip()
    return Request(**kept, own=own, gaps=tuple(gaps))


def _with_gap(request: Request, name: str, reason: str) -> Request:
    return replace(request, gaps=(*request.gaps, (name, reason)))


def _seconds(deadline: float | str) -> tuple[float, str | None]:
    try:
        seconds = float(deadline)
        if 0 < seconds < 7 * 86400:
            return seconds, None
    except (TypeError, ValueError):
        pass
    return DEADLINE, None if deadline in ("", None) else f"{deadline!r} is no number of seconds; {DEADLINE:.0f} are used"


def _in_child(request: Request, seconds: float) -> dict[str, Any]:
    """The child's answer: {report, text, card}, or {error} with {pipeline} when that much was known."""
    ends = time.monotonic() + seconds
    stopped: list[int] = []
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(request, writer)
    os.close(writer)
    previous = _on_sigterm(lambda number, _frame: stopped.append(number))
    try:
        received, why = bytearray(), None
        with selectors.DefaultSelector() as selector:
            selector.register(reader, selectors.EVENT_READ)
            while why is None:
                if stopped:
                    why = "the exit task was told to stop (SIGTERM)"
                elif time.monotonic() >= ends:
                    why = f"the deadline of {seconds:g} seconds passed"
                elif selector.select(min(0.5, max(0.0, ends - time.monotonic()))):
                    piece = os.read(reader, 1 << 20)
                    if not piece:
                        break
                    received += piece
        if why is not None:
            _kill(child)
        _, code = os.waitpid(child, 0)
    finally:
        os.close(reader)
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)
    answer: dict[str, Any] = {}
    for line in bytes(received).split(b"\n")[:-1]:  # a line without its end was cut off
        answer.update(json.loads(line))
    if "report" in answer:
        return answer
    if "error" not in answer:
        number = os.waitstatus_to_exitcode(code)
        ended = f"was ended by signal {signal.Signals(-number).name}" if number < 0 else f"ended with code {number}"
        answer["error"] = why or f"the diagnosis {ended}"
    return answer


def _on_sigterm(handler: Any) -> Any:
    """Installs ``handler``; the previous one, or None outside the main thread."""
    try:
        return signal.signal(signal.SIGTERM, handler) or signal.SIG_DFL
    except ValueError:
        return None


def _kill(child: int) -> None:
    for end in (lambda: os.killpg(child, signal.SIGKILL), lambda: os.kill(child, signal.SIGKILL)):
        try:
            end()
            return
        except OSError:
            continue


def _child(request: Request, writer: int) -> None:
    """Runs in the forked process and never returns."""
    code = 0
    try:
        os.setsid()
        with os.fdopen(writer, "wb", buffering=0) as pipe:

            def send(**values: Any) -> None:
                data = memoryview(json.dumps(values).encode() + b"\n")
                while data:
                    data = data[pipe.write(data) :]

            try:
                _diagnose(request, send)
            except MemoryError:
                send(error="the diagnosis ran out of memory")
            except BaseException as error:
                import traceback

                traceback.print_exc()
                send(error=f"{type(error).__name__}: {error}"[:500])
    except BaseException:
        code = 1
    finally:
        sys.stderr.flush()
        os._exit(code)


def _diagnose(request: Request, send: Any) -> None:
    from check_failed_run.api import diagnose

    job, run = vertex_job(request), kfp_run(request)
    if job is not None or run is not None:
        report = _diagnose_pipeline(request, job, run, send)
    else:
        record = collect(request)
        if record.pipeline is not None:
            send(pipeline=_pipeline_summary(record))
        report = diagnose(record, run_id=request.run_id or None, now=time.time())
    text, card = _rendered(report)
    send(report=report.to_dict(), text=text, card=card)
    send(page=_page(report))  # after the rest: a page that cannot be made costs no diagnosis


def vertex_job(request: Request) -> str | None:
    """The resource name of the Vertex AI job that the exit task belongs to, or None on another platform."""
    from check_failed_run.sources.kubeflow import read_status

    try:
        status = read_status(request.status)
    except ValueError:
        status = None
    for name in (request.job, status.job if status else None):
        if name and _VERTEX_JOB.match(name):
            return name
    return None


def kfp_run(request: Request) -> str | None:
    """The id of the open-source Kubeflow run that the exit task belongs to, or None on another platform."""
    from check_failed_run.sources.kubeflow import read_status

    try:
        status = read_status(request.status)
    except ValueError:
        return None
    if status is None or status.platform != "kfp" or not re.fullmatch(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", request.job_id):
        return None
    return request.job_id


def _diagnose_pipeline(request: Request, job: str | None, run_id: str | None, send: Any) -> Report:
    """From the platform's own APIs and logs; from the mounted folder where the run cannot be read at all."""
    from check_failed_run.pipeline import KfpRun, VertexRun
    from check_failed_run.sources.clients import Clients
    from check_failed_run.sources.kubeflow import default_host, read_status

    try:
        status = read_status(request.status)
    except ValueError:
        status = None
    base = RunRecord(framework=request.framework or None, task=request.task or None)
    base.skipped += [SkippedInput(f"input {name}", reason) for name, reason in request.gaps]
    if status is None and request.status.strip() not in ("", "{}", "null", "None"):
        base.skipped.append(SkippedInput("input status", "the final status is not JSON"))
    _add_logs(",".join(filter(None, (request.logs, request.artifacts))), base)

    def from_folder(record: RunRecord) -> None:
        local = collect(request)
        record.logs, record.configs, record.pipeline = local.logs, local.configs, local.pipeline
        record.skipped += [item for item in local.skipped if item not in record.skipped]

    m = _OWN_FOLDER.search(request.own)
    said, seconds = status.state if status else None, request.seconds * CLOUD_SHARE
    run: VertexRun
    if job is not None:
        _, project, _, region, *_ = job.split("/")
        run = VertexRun(job, Clients(project, region, seconds), own_task=m["id"] if m else None, exit_handler=True, said=said)
    else:
        run = KfpRun(run_id or "", default_host(), deadline=seconds, exit_handler=True, said=said)
    return run.look(base, run_id=request.run_id or None, known=lambda record: send(pipeline=_pipeline_summary(record)), fallback=from_folder)


def collect(request: Request) -> RunRecord:
    """Everything that the exit task can read without a network: status, the run's files, further logs."""
    from check_failed_run.record import PipelineRecord
    from check_failed_run.sources.kubeflow import collect_run_folder, find_run_folder, local_path, read_status

    record = RunRecord(framework=request.framework or None, task=request.task or None)
    record.skipped += [SkippedInput(f"input {name}", reason) for name, reason in request.gaps]
    status: FinalStatus | None = None
    try:
        status = read_status(request.status)
    except ValueError as error:
        record.skipped.append(SkippedInput("input status", str(error)))
    job = request.job or (status.job if status and status.platform == "vertex" else "") or request.job_name
    name = job or (status.job if status else "") or "unknown"
    record.targets.append(name)

    root = local_path(request.pipeline_root) if request.pipeline_root else None
    folder = find_run_folder(root, request.job or (status.job if status else None), request.job_name) if root else None
    if request.artifacts:
        given = local_path(request.artifacts)
        if given is None:
            record.skipped.append(SkippedInput(request.artifacts, "no such folder in this container"))
        else:
            folder = find_run_folder(given, request.job or (status.job if status else None), request.job_name) or given
    if folder is not None:
        try:
            collect_run_folder(folder, record, status, name=name, own=Path(request.own) if request.own else None)
        except OSError as error:
            record.skipped.append(SkippedInput(str(folder), error.strerror or str(error)))
    elif request.pipeline_root and not request.artifacts:
        record.skipped.append(SkippedInput(request.pipeline_root, "the pipeline root cannot be read as a folder from this container"))
    _add_logs(request.logs, record)
    if record.pipeline is None and status is not None:
        record.pipeline = PipelineRecord(
            name=name,
            state=status.state or "UNKNOWN",
            error_code=status.code,
            error_message=status.message,
            pipeline_root=request.pipeline_root or None,
            platform=status.platform,
        )
    record.failed = True if record.pipeline is not None and record.pipeline.state == "FAILED" else None
    if not record.logs:
        record.missing.append(_missing_logs(record, name))
    return record


def _add_logs(logs: str, record: RunRecord) -> None:
    from check_failed_run.sources import log_files

    for text in filter(None, (part.strip() for part in logs.split(","))):
        part = RunRecord()
        path = f"/gcs/{text[5:]}" if text.startswith("gs://") else text
        try:
            log_files.collect([path], part)
        except (log_files.InputError, OSError) as error:
            record.skipped.append(SkippedInput(text, str(error)))
        record.logs += part.logs
        record.configs += part.configs
        record.skipped += part.skipped
        record.targets.append(text)


def _missing_logs(record: RunRecord, name: str) -> MissingEvidence:
    platform = record.pipeline.platform if record.pipeline else "kfp"
    if platform == "vertex":
        region = name.split("/")[3] if name.count("/") >= 5 else "REGION"
        return MissingEvidence(
            "the pipeline job with its tasks, and the failed task's log",
            "the pipeline root holds no log, and the final status names no failed task",
            'curl -sH "Authorization: Bearer $(gcloud auth print-access-token)" '
            f"https://{region}-aiplatform.googleapis.com/v1/{name} > pipeline-job.json",
        )
    if platform == "local":
        return MissingEvidence(
            "the failed task's log",
            "local runs print it and keep no copy; no log was among the tasks' outputs",
            "run the pipeline again with its console output in a file: python -m your.pipeline 2>&1 | tee run.log; check-failed-run run.log",
        )
    return MissingEvidence(
        "the failed task's log",
        "the pipeline root holds no log, and the final status names no failed task",
        "kubectl logs POD -c main -n NAMESPACE > task.log; check-failed-run task.log",
    )


def _rendered(report: Report) -> tuple[str, str]:
    """(text report, Markdown card)."""
    from check_failed_run.report.markdown import render as markdown
    from check_failed_run.report.text import render as text

    return text(report), markdown(report)


def _page(report: Report) -> str:
    """The HTML page, or "" where it cannot be made."""
    try:
        from check_failed_run.report.html import render

        return render(report)
    except Exception:
        import traceback

        traceback.print_exc()
        return ""


def _pipeline_summary(record: RunRecord) -> dict[str, Any]:
    from check_failed_run.analysis.dag import read_dag

    pipeline = record.pipeline
    dag = read_dag(pipeline)
    return {
        "name": pipeline.name,
        "state": pipeline.state,
        "error": pipeline.error_message,
        "tasks": dag.counts,
        "failed_tasks": list(dict.fromkeys(task.name for task in dag.failed)),
        "not_triggered_tasks": list(dict.fromkeys(task.name for task in dag.not_triggered)),
        "first_failed_task": dag.first_failed.name if dag.first_failed else None,
        "last_succeeded_task": dag.last_succeeded.name if dag.last_succeeded else None,
        "platform": pipeline.platform,
    }


def _fallback(request: Request, answer: dict[str, Any], seconds: float) -> dict[str, Any]:
    """A report for when no diagnosis could be made: what is known, and why there is no more."""
    from check_failed_run.sources.kubeflow import read_status

    why = answer.get("error") or "the diagnosis gave no answer"
    try:
        status = read_status(request.status)
    except ValueError:
        status = None
    summary = answer.get("pipeline")
    if summary is None and status is not None:
        summary = {
            "name": request.job or status.job or request.job_name or "unknown",
            "state": status.state or "UNKNOWN",
            "error": status.message,
            "tasks": {},
            "failed_tasks": [],
            "not_triggered_tasks": [],
            "first_failed_task": None,
            "last_succeeded_task": None,
            "platform": status.platform,
        }
    state = summary["state"] if summary else "UNKNOWN"
    failed = state in ("FAILED", "CANCELLED")
    line = f"No diagnosis was made: {why}."
    folder = request.artifacts or request.pipeline_root
    again = f"check-failed-run {shlex.quote(folder)}" if folder and "://" not in folder else "check-failed-run LOG"
    report = Report(
        run_id=request.run_id or str(uuid.uuid4()),
        timestamp=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        duration_seconds=round(seconds, 3),
        decision="NO-GO",
        confidence="low",
        summary=line,
        findings=[],
        next_commands=[],
        run_status="crashed" if failed else "unknown",
        framework=request.framework or "unknown",
        primary_cause="unknown",
        primary_cause_confidence=0.0,
        contributing_factors=[],
        evidence=[],
        fixes=[],
        root_cause=line + (f" The pipeline's state is {state}." if summary else ""),
        missing=[Missing("a diagnosis of the run's logs", why, again)],
        skipped=[Skipped(f"input {name}", reason) for name, reason in request.gaps],
        pipeline=Pipeline(**summary, failures=[FailedTask(name, "FAILED") for name in summary["failed_tasks"]]) if summary else None,
    )
    try:
        text, card = _rendered(report)
    except Exception:  # the renderers may be what broke
        text = f"Status: {report.run_status}\nPrimary cause: unknown (confidence: 0.00)\nRoot cause:\n{line}\nDecision: NO-GO\nConfidence: low\n"
        card = "# check-failed-run\n\nNo diagnosis was made. The reason is in the task's log and in the report.\n"
    return {"report": report.to_dict(), "text": text, "card": card, "page": _page(report)}


def _write(path: str, text: str) -> None:
    """Atomically where the folder allows it; a path that cannot be written is told on stderr."""
    if not path:
        return
    try:
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        data = text.encode("utf-8", "replace")
        try:
            with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".check-failed-run-", delete=False) as file:
                file.write(data)
            os.chmod(file.name, 0o644)
            os.replace(file.name, target)
        except OSError:  # object stores mounted as folders may not rename
            target.write_bytes(data)
    except OSError as error:
        print(f"check-failed-run: {path}: cannot be written: {error.strerror or error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
