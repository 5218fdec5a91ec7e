"""The example: ingest -> validate -> train -> evaluate -> deploy under an exit handler that explains a failure.

Compile it for a backend with ``python -m pipelines.training training.yaml``; run it here with
``python -m pipelines.local``.
"""

import os
import sys
from collections.abc import Callable

from kfp import compiler, dsl

from check_failed_run.component import exit_handler

IMAGE = os.environ.get("TRAINING_IMAGE", "check-failed-run-example-python:0.1.0")
"""Image of the tasks; made by ``pipelines/Dockerfile``."""

component = dsl.component(base_image=IMAGE, install_kfp_package=False)


@component
def ingest(failure: str, data: dsl.Output[dsl.Dataset], log: dsl.Output[dsl.Artifact]):
    from pipelines.steps import run

    run("ingest", log.path, out=data.path, corrupt="true" if failure == "data" else "false")


@component
def validate(data: dsl.Input[dsl.Dataset], log: dsl.Output[dsl.Artifact]):
    from pipelines.steps import run

    run("validate", log.path, data=data.path)


@component
def train(
    data: dsl.Input[dsl.Dataset],
    failure: str,
    learning_rate: float,
    steps: int,
    batch_size: int,
    memory_limit: int,
    model: dsl.Output[dsl.Model],
    log: dsl.Output[dsl.Artifact],
):
    from pipelines.steps import run

    run(
        "train",
        log.path,
        data=data.path,
        model=model.path,
        failure=failure,
        learning_rate=learning_rate,
        steps=steps,
        batch_size=batch_size,
        memory_limit=memory_limit,
    )


@component
def evaluate(data: dsl.Input[dsl.Dataset], model: dsl.Input[dsl.Model], accuracy: dsl.OutputPath(float), log: dsl.Output[dsl.Artifact]):
    from pipelines.steps import run

    run("evaluate", log.path, data=data.path, model=model.path, out=accuracy)


@component
def deploy(model: dsl.Input[dsl.Model], accuracy: float, log: dsl.Output[dsl.Artifact]):
    from pipelines.steps import run

    run("deploy", log.path, model=model.path, accuracy=accuracy)


def build(exit_task: Callable[[], dsl.PipelineTask] = exit_handler):
    """The pipeline, with ``exit_task`` making the exit handler's task."""

    @dsl.pipeline(name="training", description="A small training that fails in a chosen way, under an exit handler that says why.")
    def training(
        failure: str = "none",
        learning_rate: float = 0.1,
        steps: int = 200,
        batch_size: int = 64,
        memory_limit: int = 2 << 30,
    ):
        with dsl.ExitHandler(exit_task()):
            ingested = ingest(failure=failure)
            validated = validate(data=ingested.outputs["data"])
            trained = train(
                data=ingested.outputs["data"],
                failure=failure,
                learning_rate=learning_rate,
                steps=steps,
                batch_size=batch_size,
                memory_limit=memory_limit,
            ).after(validated)
            evaluated = evaluate(data=ingested.outputs["data"], model=trained.outputs["model"])
            deploy(model=trained.outputs["model"], accuracy=evaluated.outputs["accuracy"])

    return training


if __name__ == "__main__":
    compiler.Compiler().compile(build(), sys.argv[1] if len(sys.argv) > 1 else "training.yaml")
