"""Put the exit handler around a pipeline that is compiled already (KFP v2 YAML or JSON).

All tasks move into one nested DAG, as ``dsl.ExitHandler`` compiles them; the exit task follows it whatever happens.
The pipeline's own inputs and outputs stay what they were. What cannot be done cleanly is refused with the reason.
Needs kfp (and with it PyYAML).
"""

from __future__ import annotations

import copy
import json
from typing import Any

TASK = "check-failed-run"
COMPONENT, EXECUTOR = f"comp-{TASK}", f"exec-{TASK}"
MAX_BYTES = 32 << 20


class AttachError(ValueError):
    """A pipeline that the exit handler cannot be put around. The message says why and what to do."""


def attach_text(text: str, *, image: str | None = None) -> tuple[str, bool]:
    """The text of a compiled pipeline with the exit handler; False where it has it already.

    Args:
        text: YAML (one document, or two with the platform's) or JSON.
        image: image of the exit task; as for ``exit_handler`` when absent.

    Raises:
        AttachError: no KFP v2 pipeline, or one that cannot be changed cleanly.
    """
    import yaml

    if len(text) > MAX_BYTES:
        raise AttachError("larger than 32 MiB: no compiled pipeline")
    is_json = text.lstrip()[:1] == "{"
    try:
        documents = [json.loads(text)] if is_json else [d for d in yaml.safe_load_all(text) if d is not None]
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise AttachError(f"neither YAML nor JSON: {str(error).splitlines()[0][:160]}") from None
    if not documents or not isinstance(documents[0], dict):
        raise AttachError("no compiled pipeline: the file holds no mapping")
    changed, did = attach(documents[0], image=image)
    if not did:
        return text, False
    documents[0] = changed
    if is_json:
        return json.dumps(changed, indent=2) + "\n", True
    return yaml.safe_dump_all(documents, sort_keys=True, explicit_start=len(documents) > 1), True


def attach(spec: dict[str, Any], *, image: str | None = None) -> tuple[dict[str, Any], bool]:
    """As :func:`attach_text`, on the pipeline's mapping (a PipelineSpec, or a PipelineJob that holds one)."""
    if "pipelineSpec" in spec and "root" not in spec:
        inner, did = attach(spec["pipelineSpec"], image=image)
        return {**spec, "pipelineSpec": inner}, did
    root = spec.get("root")
    dag = root.get("dag") if isinstance(root, dict) else None
    tasks = dag.get("tasks") if isinstance(dag, dict) else None
    if spec.get("apiVersion") or spec.get("kind") == "Workflow":
        raise AttachError("an Argo workflow (KFP v1); compile the pipeline with kfp 2")
    if not str(spec.get("schemaVersion", "")).startswith("2.") or not isinstance(tasks, dict):
        raise AttachError("no compiled KFP v2 pipeline: it has no schemaVersion 2.x with root.dag.tasks")
    if not tasks:
        raise AttachError("the pipeline has no tasks")
    exits = [name for name, task in tasks.items() if _is_exit(task)]
    if any(_is_ours(name, tasks[name], spec) for name in exits):
        return spec, False
    if exits:
        raise AttachError(f"it has an exit handler already ({', '.join(exits)}), and a pipeline may have one layer of them; call check-failed-run's exit_handler() inside that one's task, or take it out first")
    new = copy.deepcopy(spec)
    _wrap(new, image)
    return new, True


def _is_exit(task: Any) -> bool:
    parameters = ((task or {}).get("inputs") or {}).get("parameters") or {}
    return any(isinstance(value, dict) and "taskFinalStatus" in value for value in parameters.values())


def _is_ours(name: str, task: dict[str, Any], spec: dict[str, Any]) -> bool:
    from check_failed_run.component import COMMAND

    component = (spec.get("components") or {}).get((task.get("componentRef") or {}).get("name") or "") or {}
    executor = ((spec.get("deploymentSpec") or {}).get("executors") or {}).get(component.get("executorLabel") or "") or {}
    return list((executor.get("container") or {}).get("command") or []) == list(COMMAND)


def _wrap(spec: dict[str, Any], image: str | None) -> None:
    root, components = spec["root"], spec.setdefault("components", {})
    dag = root["dag"]
    if TASK in dag["tasks"] or COMPONENT in components:
        raise AttachError(f"a task or component of it is called {TASK} and is none of ours; rename it")
    group = _free("exit-handler", {*dag["tasks"], *(name.removeprefix("comp-") for name in components)})
    inner: dict[str, Any] = {"dag": {"tasks": dag["tasks"]}}
    if dag.get("outputs"):
        inner["dag"]["outputs"] = dag["outputs"]
    for name in ("inputDefinitions", "outputDefinitions"):
        if root.get(name):
            inner[name] = copy.deepcopy(root[name])
    components[f"comp-{group}"] = inner
    task: dict[str, Any] = {"componentRef": {"name": f"comp-{group}"}, "taskInfo": {"name": group}}
    inputs = _inputs(root.get("inputDefinitions") or {})
    if inputs:
        task["inputs"] = inputs
    dag["tasks"] = {group: task}
    if dag.get("outputs"):
        dag["outputs"] = _outputs(dag["outputs"], group)
    component, executor, exit_task = _exit_parts(group, image)
    components[COMPONENT] = component
    spec.setdefault("deploymentSpec", {}).setdefault("executors", {})[EXECUTOR] = executor
    dag["tasks"][TASK] = exit_task


def _free(stem: str, taken: set[str]) -> str:
    number = 1
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"


def _inputs(definitions: dict[str, Any]) -> dict[str, Any]:
    """The group gets every input of the pipeline under its own name."""
    found: dict[str, Any] = {}
    if definitions.get("parameters"):
        found["parameters"] = {name: {"componentInputParameter": name} for name in definitions["parameters"]}
    if definitions.get("artifacts"):
        found["artifacts"] = {name: {"componentInputArtifact": name} for name in definitions["artifacts"]}
    return found


def _outputs(outputs: dict[str, Any], group: str) -> dict[str, Any]:
    """The pipeline's outputs now come from the group."""
    found: dict[str, Any] = {}
    if outputs.get("parameters"):
        found["parameters"] = {name: {"valueFromParameter": {"producerSubtask": group, "outputParameterKey": name}} for name in outputs["parameters"]}
    if outputs.get("artifacts"):
        found["artifacts"] = {name: {"artifactSelectors": [{"producerSubtask": group, "outputArtifactKey": name}]} for name in outputs["artifacts"]}
    unknown = set(outputs) - {"parameters", "artifacts"}
    if unknown:
        raise AttachError(f"outputs of a kind that is not known: {', '.join(sorted(unknown))}")
    return found


def _exit_parts(group: str, image: str | None) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Component, executor and task of the exit handler, as kfp compiles them."""
    from google.protobuf.json_format import MessageToDict

    from check_failed_run.component import image as default_image
    from check_failed_run.kfp_component import check_failed_run

    compiled = MessageToDict(check_failed_run.pipeline_spec)
    component = compiled["components"][COMPONENT]
    executor = compiled["deploymentSpec"]["executors"][component["executorLabel"]]
    component["executorLabel"] = EXECUTOR
    executor["container"]["image"] = image or default_image()
    task = {
        "cachingOptions": {},
        "componentRef": {"name": COMPONENT},
        "dependentTasks": [group],
        "inputs": {"parameters": {"status": {"taskFinalStatus": {"producerTask": group}}}},
        "taskInfo": {"name": TASK},
        "triggerPolicy": {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"},
    }
    return component, executor, task
