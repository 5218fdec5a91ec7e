"""The KFP definition of the component. Imports kfp: only for building and compiling pipelines.

No ``from __future__ import annotations`` here: kfp reads the annotations as objects.
"""

from kfp import dsl

from check_failed_run.component import COMMAND, image


@dsl.container_component
def check_failed_run(
    status: dsl.PipelineTaskFinalStatus,
    report: dsl.Output[dsl.Artifact],
    card: dsl.Output[dsl.Markdown],
    page: dsl.Output[dsl.HTML],
    primary_cause: dsl.OutputPath(str),
    confidence: dsl.OutputPath(str),
    decision: dsl.OutputPath(str),
    retry: dsl.OutputPath(str),
    fingerprint: dsl.OutputPath(str),
    job: str = "",
    artifacts: str = "",
    logs: str = "",
    framework: str = "",
    task: str = "",
    run_id: str = "",
    deadline_seconds: str = "600",
):
    """Says why the run failed, proves it, and says what to do next. Never fails itself.

    Args:
        status: final status of the tasks under the exit handler; set by the backend.
        report: check-failed-run.json.
        card: the Markdown card.
        page: the HTML page.
        primary_cause: one of the 13 failure classes, none, or unknown.
        confidence: high, medium, low.
        decision: GO, NO-GO.
        retry: retry, retry-elsewhere, change-first, stop.
        fingerprint: the same failure gives the same one.
        job: pipeline job resource name; taken from the status when empty.
        artifacts: folder (or gs:// folder) that holds the run's files; the pipeline root when empty.
        logs: further log files or folders, separated by commas.
        framework: pytorch, lightning, deepspeed, fsdp, tensorflow, jax; detected when empty.
        task: classification, regression, language-modeling.
        run_id: run_id of the report; a UUID when empty.
        deadline_seconds: time after which a report of what is known is written.
    """
    return dsl.ContainerSpec(
        image=image(),
        command=list(COMMAND),
        args=[
            "--status", status,
            "--job", job,
            "--job-id", dsl.PIPELINE_JOB_ID_PLACEHOLDER,
            "--job-name", dsl.PIPELINE_JOB_NAME_PLACEHOLDER,
            "--pipeline-root", dsl.PIPELINE_ROOT_PLACEHOLDER,
            "--artifacts", artifacts,
            "--logs", logs,
            "--framework", framework,
            "--task", task,
            "--run-id", run_id,
            "--deadline", deadline_seconds,
            "--report", report.path,
            "--card", card.path,
            "--page", page.path,
            "--primary-cause", primary_cause,
            "--confidence", confidence,
            "--decision", decision,
            "--retry", retry,
            "--fingerprint", fingerprint,
        ],
    )  # fmt: skip


if __name__ == "__main__":  # python -m check_failed_run.kfp_component [FILE]: CHECK_FAILED_RUN_IMAGE names the image
    import sys

    from kfp import compiler

    compiler.Compiler().compile(check_failed_run, sys.argv[1] if len(sys.argv) > 1 else "component.yaml")
