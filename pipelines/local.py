"""Run the example pipeline on this machine with kfp.local and show what its exit handler found.

    python -m pipelines.local --failure nan --out demo-out

With a Docker engine and the two images (``make image``) every task runs in its container, without a network.
Elsewhere the same tasks run as processes, and the exit handler as a Python component.
"""

import argparse
import contextlib
import json
import os
import sys
import time
from pathlib import Path

from kfp import compiler, dsl, local

from check_failed_run.component import exit_handler, image
from check_failed_run.sources.kubeflow import SPEC_FILE
from pipelines import training
from pipelines.steps import FAILURES

REPOSITORY = Path(__file__).resolve().parent.parent


@dsl.component(base_image="python", install_kfp_package=False)
def check_failed_run(
    status: dsl.PipelineTaskFinalStatus,
    job_name: str,
    pipeline_root: str,
    report: dsl.Output[dsl.Artifact],
    card: dsl.Output[dsl.Markdown],
    page: dsl.Output[dsl.HTML],
    primary_cause: dsl.OutputPath(str),
    confidence: dsl.OutputPath(str),
    decision: dsl.OutputPath(str),
    retry: dsl.OutputPath(str),
    fingerprint: dsl.OutputPath(str),
):
    """The exit handler as a Python component: SubprocessRunner runs no containers."""
    import json

    from check_failed_run.component import run_in_container

    run_in_container(
        status=json.dumps(
            {
                "state": status.state,
                "error": {"code": status.error_code, "message": status.error_message},
                "pipelineJobResourceName": status.pipeline_job_resource_name,
                "pipelineTaskName": status.pipeline_task_name,
            }
        ),
        job_name=job_name,
        pipeline_root=pipeline_root,
        report=report.path,
        card=card.path,
        page=page.path,
        primary_cause=primary_cause,
        confidence=confidence,
        decision=decision,
        retry=retry,
        fingerprint=fingerprint,
    )


def process_exit_handler() -> dsl.PipelineTask:
    task = check_failed_run(job_name=dsl.PIPELINE_JOB_NAME_PLACEHOLDER, pipeline_root=dsl.PIPELINE_ROOT_PLACEHOLDER)
    return task.set_caching_options(False)


def docker_problem(images: list[str]) -> str | None:
    """Why DockerRunner cannot be used, or None."""
    try:
        import docker

        client = docker.from_env(timeout=10)
        try:
            for name in images:
                client.images.get(name)
        finally:
            client.close()
    except ImportError:
        return "the Python package docker is not installed"
    except Exception as error:  # docker and requests have several trees of their own
        return f"{type(error).__name__}: {str(error).splitlines()[0][:160]}"
    return None


def keep_exit_codes() -> None:
    """Make DockerRunner report the exit code of tasks that fail at once.

    kfp 2.17 starts containers with auto_remove and asks for the exit code afterwards; where the engine was
    faster it takes the task for succeeded (kfp/local/docker_task_handler.py, run_docker_container).
    """
    from kfp.local import docker_task_handler

    def run_docker_container(client, image, command, volumes, **arguments):
        container = client.containers.create(image=image, command=command, volumes=volumes, **arguments)
        try:
            container.start()
            for piece in container.logs(stream=True, follow=True):
                print(piece.decode("utf-8", "replace"), end="")
            return container.wait()["StatusCode"]
        finally:
            container.remove(force=True)

    docker_task_handler.run_docker_container = run_docker_container


def run(failure: str, out: Path, runner: str = "auto", exit_image: str | None = None, verbose: bool = False) -> Path:
    """Run the pipeline below ``out``; returns the run's folder.

    Raises:
        RuntimeError: Docker was asked for and cannot be used, or the exit handler left no report.
    """
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    exit_image = exit_image or image()
    problem = docker_problem([exit_image, training.IMAGE]) if runner != "subprocess" else "processes were asked for"
    if problem and runner == "docker":
        raise RuntimeError(f"DockerRunner cannot be used: {problem}")
    if problem:
        if runner == "auto":
            print(f"Tasks run as processes ({problem}).", file=sys.stderr)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
        pipeline = training.build(process_exit_handler)
        how = local.SubprocessRunner(use_venv=False)
    else:
        keep_exit_codes()
        pipeline = training.build(lambda: exit_handler(image=exit_image))
        # entrypoint=[]: Kubernetes replaces an image's entry point by a component's command, Docker would append to it.
        how = local.DockerRunner(user=f"{os.getuid()}:{os.getgid()}", entrypoint=[], network_mode="none", environment={"HOME": "/tmp"})

    spec = out / "pipeline.json"
    compiler.Compiler().compile(pipeline, str(spec))
    spec.replace(out / SPEC_FILE)
    started = time.time()
    local.init(runner=how, pipeline_root=str(out), raise_on_error=False)
    console = out / "console.log"
    with contextlib.ExitStack() as stack:
        if not verbose:
            file = stack.enter_context(open(console, "w", encoding="utf-8"))
            stack.enter_context(contextlib.redirect_stdout(file))
        pipeline(failure=failure)
    folders = [p for p in out.glob("training-*/check-failed-run") if (p / "report").is_file() and p.stat().st_mtime >= started - 1]
    if not folders:
        raise RuntimeError(f"the exit handler left no report below {out}" + ("" if verbose else f"; the pipeline's output is in {console}"))
    return max(folders, key=lambda p: p.stat().st_mtime).parent


def text_report(report: Path) -> str:
    """The text report of a JSON report."""
    from pydantic import TypeAdapter

    from check_failed_run.report.model import Report
    from check_failed_run.report.text import render

    return render(TypeAdapter(Report).validate_python(json.loads(report.read_text(encoding="utf-8"))))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipelines.local", description="Run the example pipeline here and show why it failed.")
    parser.add_argument("--failure", choices=FAILURES, default="nan", help="how the training fails (default: nan)")
    parser.add_argument("--out", type=Path, default=Path("demo-out"), help="pipeline root (default: demo-out)")
    parser.add_argument("--runner", choices=("auto", "docker", "subprocess"), default="auto")
    parser.add_argument("--image", help="image of the exit handler (default: %(default)s)", default=image())
    parser.add_argument("-v", "--verbose", action="store_true", help="show what the pipeline prints")
    options = parser.parse_args(argv)
    print(f"Running ingest -> validate -> train -> evaluate -> deploy (failure: {options.failure}) ...", file=sys.stderr)
    try:
        folder = run(options.failure, options.out, options.runner, options.image, options.verbose)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    task = folder / "check-failed-run"
    print(text_report(task / "report").rstrip("\n"))
    print(f"\nReport: {task / 'report'}\nCard:   {task / 'card'}\nPage:   {task / 'page'}\nTasks:  {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
