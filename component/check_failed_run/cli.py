"""The command line: parses, wires, exits. No judgement."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

ENV_PREFIX = "CHECK_FAILED_RUN"
EXIT_OK, EXIT_FAILURE, EXIT_MISUSE, EXIT_UNDECIDED = 0, 1, 2, 3
FORMATS = ("text", "json", "markdown", "html", "sarif", "junit", "github")
FRAMEWORKS = ("pytorch", "lightning", "deepspeed", "fsdp", "tensorflow", "jax")
TASKS = ("classification", "regression", "language-modeling")
CONTEXT = {"help_option_names": ["-h", "--help"], "auto_envvar_prefix": ENV_PREFIX, "max_content_width": 110}


class Misuse(click.UsageError):
    exit_code = EXIT_MISUSE


@click.command(context_settings=CONTEXT, epilog="Other commands, each with --help: explain, signatures, attach, doctor, serve.")
@click.argument("inputs", nargs=-1, metavar="[INPUT...]", envvar=f"{ENV_PREFIX}_INPUTS")
@click.option("--traceback", "traceback", is_flag=False, flag_value="-", default=None, metavar="[TEXT]", help="Diagnose a pasted traceback; read from standard input when no text follows.")
@click.option("--vertex-pipeline", metavar="JOB", help="A Vertex AI PipelineJob: id, full resource name, or display name (the newest).")
@click.option("--project", metavar="PROJECT", help="Google Cloud project of the job; default: from the job's name or the gcloud configuration.")
@click.option("--region", metavar="REGION", help="Region of the job; default: from the job's name, the gcloud configuration, or us-central1.")
@click.option("--kfp-run", metavar="RUN", help="A run of open-source Kubeflow Pipelines, by its id.")
@click.option("--host", metavar="URL", help="The Kubeflow Pipelines API, for --kfp-run.")
@click.option("--namespace", metavar="NAME", help="Where the pods of --kfp-run are; default: this pod's own, else kubeflow.")
@click.option("--framework", type=click.Choice(FRAMEWORKS), help="What trained, where the log does not show it.")
@click.option("--task", type=click.Choice(TASKS), help="What is trained; sets what a plausible loss and metric are.")
@click.option("--signatures", "user_signatures", type=click.Path(path_type=Path), multiple=True, metavar="FILE", help="Signatures of your own (TOML); may be given several times.")
@click.option("--exit-status", type=click.IntRange(-64, 255), metavar="N", help="How the training process ended: its exit status; with one other than 0 the run failed, whatever the log says.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Read only the last N lines of each log.")
@click.option("--out-dir", metavar="FOLDER", help="Where check-failed-run.json is written, gs://BUCKET/FOLDER too; default: the current folder.")
@click.option("--run-id", metavar="ID", help="run_id of the report; default: a new UUID.")
@click.option("--format", "format", type=click.Choice(FORMATS), default="text", show_default=True, help="What is printed.")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Print into FILE instead of standard output.")
@click.option("--once", is_flag=True, help="Look once and do not watch a run that is still going.")
@click.option("--interval", type=click.FloatRange(min=1), default=60.0, show_default=True, metavar="SECONDS", help="How often a running job is looked at.")
@click.option("--now", metavar="TIME", help="Diagnose as of this moment (ISO 8601).")
@click.option("--exit-code", is_flag=True, help="Exit 1 when a failure was found, 3 when the evidence does not decide.")
@click.option("-q", "--quiet", is_flag=True, help="Nothing on standard error but errors.")
@click.option("-v", "--verbose", is_flag=True, help="Say on standard error what is read and how long it took.")
@click.version_option(package_name="check-failed-run", prog_name="check-failed-run")
def diagnose_command(inputs: tuple[str, ...], traceback: str | None, **options: Any) -> int:
    """Say why a training run failed, prove it, and say what to do next.

    INPUT is any number of log files, folders, globs, compressed files, or - for standard input. Several logs of
    one run (per-rank files, attempts, a configuration beside them) are diagnosed together.

    \b
    Examples:
      check-failed-run train.log
      check-failed-run logs/rank*.log config.yaml --exit-code
      kubectl logs job/train | check-failed-run -
      check-failed-run --vertex-pipeline 1234567890 --project my-project
      check-failed-run --kfp-run 0b7a1c52-8c1e-4c39-9a53-3f1f5a2d9e11 --host http://localhost:8888
    """
    from check_failed_run.record import MissingEvidence, RunRecord
    from check_failed_run.sources.log_files import InputError, NothingToRead, add_text, collect, shorten_names

    _add_signatures(options["user_signatures"])
    record = RunRecord(framework=options["framework"], task=options["task"])
    record.now = _moment(options["now"])
    if options["vertex_pipeline"] and options["kfp_run"]:
        raise Misuse("--vertex-pipeline and --kfp-run name two runs. One call diagnoses one run: call it twice.")
    if options["host"] and not options["kfp_run"]:
        raise Misuse("--host goes with --kfp-run. Name the run as well.")
    if not inputs and traceback is None and not options["vertex_pipeline"] and not options["kfp_run"]:
        raise Misuse("nothing to diagnose. Name a log file or folder, pipe a log into 'check-failed-run -', or see --help.")
    try:
        if traceback is not None:
            text = traceback
            if text == "-":
                if sys.stdin.isatty() and not options["quiet"]:
                    click.echo("Paste the traceback, then press Ctrl-D.", err=True)
                text = sys.stdin.read()
            if not text.strip():
                raise Misuse("--traceback: the text is empty. Paste a traceback after it, or pipe one in.")
            record.targets.append("traceback")
            add_text("traceback", text if text.endswith("\n") else text + "\n", record)
        if inputs:
            try:
                collect(inputs, record, last=options["last"])
            except NothingToRead as error:
                if not options["exit_status"]:
                    raise
                # a process that was killed before it wrote anything: its exit status is all there is
                record.missing.append(MissingEvidence("the log", str(error), "run again with unbuffered output: PYTHONUNBUFFERED=1 COMMAND 2>&1 | tee train.log"))
            shorten_names(record)
    except InputError as error:
        raise Misuse(str(error)) from None
    _add_exit_status(record, options["exit_status"])
    if options["vertex_pipeline"] or options["kfp_run"]:
        return _pipeline(record, options)
    return _run(record, options)


def _add_exit_status(record: Any, status: int | None) -> None:
    """What the caller knows of the end; a signal (negative, or 128 and its number) is evidence of its own."""
    from check_failed_run.sources.log_files import add_text

    record.exit_code = status
    if status:
        record.failed = True
        if status < 0 or status > 128:
            add_text("exit status", f"the training process ended with exit code {status}\n", record)


def _add_signatures(paths: tuple[Path, ...]) -> None:
    for path in paths:
        from check_failed_run import catalogue
        from check_failed_run.catalogue.user import SignatureError, read_signatures

        try:
            catalogue.add(read_signatures(path))
        except (SignatureError, ValueError) as error:
            raise Misuse(f"--signatures: {error}") from None


def _pipeline(record: Any, options: dict[str, Any]) -> int:
    from check_failed_run.watch import watch_kfp, watch_vertex

    report = (watch_vertex if options["vertex_pipeline"] else watch_kfp)(record, options, Misuse)
    publish(report, options)
    return exit_status(report) if options["exit_code"] else EXIT_OK


def _run(record: Any, options: dict[str, Any]) -> int:
    import time

    from check_failed_run.api import diagnose

    started = time.process_time()
    with _Progress(record, quiet=options["quiet"]) as progress:
        report = diagnose(record, run_id=options["run_id"], now=record.now, progress=progress)
    publish(report, options)
    if options["verbose"]:
        for item in report.skipped:
            click.echo(f"skipped {item.input}: {item.reason}", err=True)
        click.echo(f"{len(record.logs)} log(s), {len(report.signals)} signal(s), {time.process_time() - started:.2f} s of CPU", err=True)
    return exit_status(report) if options["exit_code"] else EXIT_OK


def publish(report: Any, options: dict[str, Any]) -> None:
    """Write check-failed-run.json and print the chosen format."""
    from check_failed_run.publish.files import PublishError, write_text

    failed: PublishError | None = None
    path = None
    try:
        path = _write_report(report, options["out_dir"])
    except PublishError as error:
        failed = error  # said after the diagnosis, which is not lost for it
    try:
        text = render(report, options["format"], color=options["output"] is None and _wants_color())
        if options["output"] is not None:
            write_text(options["output"], text)
        else:
            if hasattr(sys.stdout, "reconfigure"):
                sys.stdout.reconfigure(encoding="utf-8", errors="replace")
            sys.stdout.write(text)
            sys.stdout.flush()
        if options["verbose"] and path:
            click.echo(f"report: {path}", err=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except PublishError as error:
        raise Misuse(str(error)) from None
    if failed is not None:
        raise Misuse(str(failed))


def _write_report(report: Any, out_dir: str | None) -> Path | str | None:
    from check_failed_run.publish import files, gcs_folder

    try:
        if out_dir is not None and gcs_folder.is_gcs(out_dir):
            return gcs_folder.write_report(report, out_dir)
        return files.write_report(report, out_dir or ".")
    except files.PublishError as error:
        if out_dir is not None:
            raise
        # Nobody asked for this folder, and a read-only one (a mounted log folder) is no reason to keep the diagnosis back.
        click.echo(f"{files.REPORT_NAME} was not written: {error}", err=True)
        return None


def render(report: Any, name: str, *, color: bool = False) -> str:
    if name == "json":
        from check_failed_run.publish.files import to_json

        return to_json(report)
    if name == "markdown":
        from check_failed_run.report.markdown import render as markdown

        return markdown(report)
    if name == "html":
        from check_failed_run.report.html import render as html

        return html(report)
    if name == "sarif":
        from check_failed_run.report.sarif import render as sarif

        return sarif(report, Path.cwd())
    if name == "junit":
        from check_failed_run.report.junit import render as junit

        return junit(report)
    if name == "github":
        from check_failed_run.report.github_annotations import render as github

        return github(report, Path.cwd())
    from check_failed_run.report.text import render as text

    return text(report, color=color)


def exit_status(report: Any) -> int:
    """0 no failure found, 1 failure found, 3 not enough evidence."""
    if report.primary_cause == "unknown" or report.run_status == "unknown":
        return EXIT_UNDECIDED
    if report.primary_cause == "none" or report.run_status in ("healthy", "recovered", "running"):
        return EXIT_OK
    return EXIT_FAILURE


def _wants_color() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Misuse(f"--now: {text!r} is no ISO 8601 time. Write it as 2026-05-01T12:00:00Z.") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class _Progress:
    """A bar on standard error for inputs that take more than a second, only on a terminal."""

    def __init__(self, record: Any, *, quiet: bool):
        import time

        self._clock = time.monotonic
        self._started = self._clock()
        self._shown = 0.0
        self._done = 0
        sizes = [log.size for log in record.logs]
        self._total = sum(s for s in sizes if s) if all(s is not None for s in sizes) else None
        self._on = not quiet and sys.stderr.isatty()

    def __enter__(self) -> Any:
        return self.update if self._on else None

    def update(self, name: str, count: int) -> None:
        self._done += count
        now = self._clock()
        elapsed = now - self._started
        if elapsed < 1 or now - self._shown < 0.1:
            return
        self._shown = now
        rate = self._done / elapsed
        share = f"{100 * self._done / self._total:3.0f} %" if self._total else f"{self._done / 1e6:.0f} MB"
        left = f", {(self._total - self._done) / rate:.0f} s left" if self._total and rate else ""
        sys.stderr.write(f"\r\x1b[K{share} {Path(name).name[:40]} {rate / 1e9:.2f} GB/s{left}")
        sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self._on and self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@click.command(context_settings=CONTEXT)
@click.argument("name", metavar="SIGNATURE-ID|CLASS")
def explain_command(name: str) -> int:
    """Print what the catalogue knows about a signature or a failure class."""
    from check_failed_run.report.explain import explain

    text = explain(name)
    if text is None:
        from difflib import get_close_matches

        from check_failed_run.report.explain import known_names

        close = get_close_matches(name, known_names(), n=3, cutoff=0.5)
        hint = f" Did you mean {', '.join(close)}?" if close else ""
        raise Misuse(f"{name!r} is neither a signature nor a class.{hint} 'check-failed-run signatures' lists them.")
    click.echo(text, nl=False)
    return EXIT_OK


@click.command(context_settings=CONTEXT)
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option("--class", "cls", metavar="CLASS", help="Only this failure class.")
def signatures_command(format_: str, cls: str | None) -> int:
    """List the catalogue."""
    from check_failed_run.report.explain import list_signatures

    text = list_signatures(format_, cls)
    if text is None:
        raise Misuse(f"--class: {cls!r} is no failure class.")
    click.echo(text, nl=False)
    return EXIT_OK


@click.command(context_settings=CONTEXT)
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True, envvar="PORT", help="Where to listen.")
@click.option("--threads", type=click.IntRange(1, 64), default=4, show_default=True, help="Requests handled at the same time.")
def serve_command(port: int, threads: int) -> int:
    """Run the failure hook: Pub/Sub push events in, reports and messages out. See hook/README.md."""
    try:
        from failure_hook.service import serve
        from failure_hook.settings import SettingsError, from_environment
    except ImportError as error:
        raise Misuse(f"serve needs the extra [hook]: pip install 'check-failed-run[hook]' ({error.name} is missing).") from None
    try:
        from_environment()
    except SettingsError as error:
        raise Misuse(str(error)) from None
    serve(port, threads=threads)
    return EXIT_OK


@click.command(context_settings=CONTEXT)
@click.argument("pipeline", type=click.Path(path_type=Path), metavar="PIPELINE.YAML")
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Where the result is written; default: standard output.")
@click.option("--image", metavar="IMAGE", help="Image of the exit task.")
def attach_command(pipeline: Path, output: Path | None, image: str | None) -> int:
    """Put the exit handler around a compiled KFP v2 pipeline.

    A pipeline that has it already comes out unchanged; one that cannot be changed cleanly is refused.
    """
    from check_failed_run.publish.files import PublishError, write_text

    try:
        text = pipeline.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"{pipeline}: {getattr(error, 'strerror', None) or 'no text in UTF-8'}") from None
    try:
        from check_failed_run.attach import AttachError, attach_text

        result, did = attach_text(text, image=image)
    except ImportError as error:
        raise Misuse(f"attach needs the extra [kfp]: pip install 'check-failed-run[kfp]' ({error.name} is missing).") from None
    except AttachError as error:
        raise Misuse(f"{pipeline}: {error}") from None
    if not did:
        click.echo(f"{pipeline} has the exit handler already.", err=True)
    try:
        if output is None:
            click.echo(result, nl=False)
        else:
            write_text(output, result)
    except PublishError as error:
        raise Misuse(str(error)) from None
    return EXIT_OK


@click.command(context_settings=CONTEXT)
@click.option("--project", metavar="PROJECT", help="Where pipelines run; default: of the environment or the gcloud configuration.")
@click.option("--region", metavar="REGION", help="Region of the pipelines; default: of the gcloud configuration, or us-central1.")
@click.option("--bucket", metavar="BUCKET", help="Bucket of the pipeline root.")
def doctor_command(project: str | None, region: str | None, bucket: str | None) -> int:
    """Print each permission that the exit handler and the hook need: yes, no or unknown, and the command that grants it.

    Only looks. Exits 1 when a permission is missing.
    """
    try:
        from check_failed_run.doctor import NO, examine, table
        from check_failed_run.sources.clients import default_project, default_region

        project = project or default_project()
        if not project:
            raise Misuse("no project is known. Add --project, set GOOGLE_CLOUD_PROJECT, or run: gcloud config set project PROJECT")
        findings = examine(project, region or default_region(), (bucket or "").removeprefix("gs://").split("/")[0] or None)
    except ImportError as error:
        raise Misuse(f"doctor needs the extra [cloud]: pip install 'check-failed-run[cloud]' ({error.name} is missing).") from None
    click.echo(table(findings), nl=False)
    return EXIT_FAILURE if any(f.answer == NO for f in findings) else EXIT_OK


COMPONENT = ["python3", "-m", "check_failed_run.component"]
COMMANDS = {"explain": explain_command, "signatures": signatures_command, "attach": attach_command, "doctor": doctor_command, "serve": serve_command}


def main(argv: list[str] | None = None) -> None:
    """Entry point. Errors of use exit with 2 and one message; nothing ends in a Python traceback."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args[: len(COMPONENT)] == COMPONENT:  # a runner that hands the component's command to the image's entry point
        from check_failed_run.component import main as component

        sys.exit(component(args[len(COMPONENT) :]))
    command = diagnose_command
    if args and args[0] in COMMANDS:
        command = COMMANDS[args.pop(0)]
    try:
        status = command.main(args=args, prog_name="check-failed-run", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_MISUSE)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)


if __name__ == "__main__":
    main()
