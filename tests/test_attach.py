"""``attach``: what it makes is what kfp compiles, wires every input and output, and runs."""

import json
import os
import subprocess
import sys

import pytest
import yaml
from kfp import compiler, dsl, local

from check_failed_run.attach import AttachError, attach_text
from check_failed_run.component import exit_handler
from tests.conftest import IMAGE

EXAMPLE = os.environ.get("TRAINING_IMAGE", "check-failed-run-example-python:0.1.0")


@dsl.component(base_image=EXAMPLE, install_kfp_package=False)
def make(text: str, data: dsl.Output[dsl.Dataset]) -> int:
    with open(data.path, "w") as file:
        file.write(text)
    return 7


@dsl.component(base_image=EXAMPLE, install_kfp_package=False)
def use(data: dsl.Input[dsl.Dataset], number: int, fail: str):
    with open(data.path) as file:
        print(file.read(), number)
    if fail != "no":
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")


@dsl.container_component
def never():
    return dsl.ContainerSpec(image=EXAMPLE, command=["echo", "never"])


@dsl.pipeline(name="plain")
def plain(text: str = "hello", fail: str = "no") -> dsl.Dataset:
    made = make(text=text)
    used = use(data=made.outputs["data"], number=made.outputs["Output"], fail=fail)
    never().after(used)
    with dsl.If(text == "x"), dsl.ParallelFor([1, 2]):
        never()
    return made.outputs["data"]


@dsl.pipeline(name="by-hand")
def by_hand(text: str = "hello", fail: str = "no"):
    with dsl.ExitHandler(exit_handler(image=IMAGE)):
        made = make(text=text)
        used = use(data=made.outputs["data"], number=made.outputs["Output"], fail=fail)
        never().after(used)


def compiled(pipeline, tmp_path) -> str:
    path = tmp_path / "p.yaml"
    compiler.Compiler().compile(pipeline, str(path))
    return path.read_text()


def test_it_is_what_kfp_compiles(tmp_path):
    text, did = attach_text(compiled(plain, tmp_path), image=IMAGE)
    made, wanted = yaml.safe_load(text), yaml.safe_load(compiled(by_hand, tmp_path))
    assert did
    for name in ("comp-check-failed-run",):
        assert made["components"][name] == wanted["components"][name]
    assert made["deploymentSpec"]["executors"]["exec-check-failed-run"] == wanted["deploymentSpec"]["executors"]["exec-check-failed-run"]
    assert made["root"]["dag"]["tasks"]["check-failed-run"] == wanted["root"]["dag"]["tasks"]["check-failed-run"]
    assert list(made["root"]["dag"]["tasks"]) == ["check-failed-run", "exit-handler-1"]


def test_inputs_and_outputs_stay(tmp_path):
    before = yaml.safe_load(compiled(plain, tmp_path))
    after = yaml.safe_load(attach_text(compiled(plain, tmp_path))[0])
    assert after["root"]["inputDefinitions"] == before["root"]["inputDefinitions"] and after["root"]["outputDefinitions"] == before["root"]["outputDefinitions"]
    group = after["components"]["comp-exit-handler-1"]
    assert group["dag"]["tasks"] == before["root"]["dag"]["tasks"] and group["outputDefinitions"] == before["root"]["outputDefinitions"]
    assert set(after["root"]["dag"]["tasks"]["exit-handler-1"]["inputs"]["parameters"]) == {"text", "fail"}


def test_twice_is_once_and_json_stays_json(tmp_path):
    once, did = attach_text(compiled(plain, tmp_path))
    assert did and attach_text(once) == (once, False)
    as_json = json.dumps(yaml.safe_load(compiled(plain, tmp_path)))
    assert json.loads(attach_text(as_json)[0]) == yaml.safe_load(once)


def test_a_handler_of_ours_by_hand_is_left_alone(tmp_path):
    text = compiled(by_hand, tmp_path)
    assert attach_text(text) == (text, False)


def test_kfp_loads_what_it_makes(tmp_path):
    from kfp import components

    loaded = components.load_component_from_text(attach_text(compiled(plain, tmp_path))[0])
    assert set(loaded.component_spec.inputs) == {"text", "fail"}


@dsl.component(base_image="python", install_kfp_package=False)
def other_handler(status: dsl.PipelineTaskFinalStatus):
    print(status.state)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no mapping"),
        ("[1, 2]", "no mapping"),
        ("a: [", "neither YAML"),
        ("apiVersion: argoproj.io/v1alpha1\nkind: Workflow\n", "Argo"),
        ("schemaVersion: 2.1.0\nroot: {dag: {tasks: {}}}", "no tasks"),
        ("x: 1", "no compiled KFP v2"),
        ("schemaVersion: 2.1.0\nroot: {dag: {tasks: {check-failed-run: {}}}}", "rename it"),
    ],
)
def test_refused_with_the_reason(text, word):
    with pytest.raises(AttachError) as error:
        attach_text(text)
    assert word in str(error.value)


def test_another_exit_handler_is_refused(tmp_path):
    @dsl.pipeline(name="taken")
    def taken():
        with dsl.ExitHandler(other_handler()):
            never()

    with pytest.raises(AttachError, match="exit handler already"):
        attach_text(compiled(taken, tmp_path))


def test_the_command(tmp_path):
    source, out = tmp_path / "p.yaml", tmp_path / "out.yaml"
    source.write_text(compiled(plain, tmp_path))
    run = lambda *a: subprocess.run([sys.executable, "-m", "check_failed_run.cli", "attach", *map(str, a)], capture_output=True, text=True, timeout=120)  # noqa: E731
    assert run(source, "-o", out).returncode == 0 and "exit-handler-1" in out.read_text()
    assert "already" in run(out, "-o", out).stderr
    assert run(tmp_path / "none.yaml").returncode == 2
    source.write_text("x: 1")
    done = run(source)
    assert done.returncode == 2 and "no compiled KFP v2" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.image
def test_the_result_runs(tmp_path):
    from kfp import components

    from pipelines.local import keep_exit_codes

    keep_exit_codes()
    text, _ = attach_text(compiled(plain, tmp_path), image=IMAGE)
    root = tmp_path / "root"
    root.mkdir()
    runner = local.DockerRunner(user=f"{os.getuid()}:{os.getgid()}", entrypoint=[], network_mode="none", environment={"HOME": "/tmp"})
    local.init(runner=runner, pipeline_root=str(root), raise_on_error=False)
    components.load_component_from_text(text)(text="hello", fail="yes")
    (report,) = root.rglob("check-failed-run/report")
    found = json.loads(report.read_text())
    assert found["pipeline"]["state"] == "FAILED" and found["run_status"] == "crashed"
    assert not list(root.rglob("never*/executor_output.json"))


def test_the_decorator_gives_what_the_context_gives(tmp_path):
    from kfp import compiler, dsl

    from check_failed_run.component import exit_handler, with_exit_handler

    @dsl.container_component
    def train(lr: float):
        return dsl.ContainerSpec(image="busybox", command=["echo"], args=[lr])

    @dsl.pipeline(name="p")
    @with_exit_handler(image="check:1", framework="pytorch")
    def decorated(lr: float = 0.1):
        train(lr=lr)

    @dsl.pipeline(name="p")
    def plain(lr: float = 0.1):
        with dsl.ExitHandler(exit_handler(image="check:1", framework="pytorch")):
            train(lr=lr)

    texts = []
    for number, pipeline in enumerate((decorated, plain)):
        compiler.Compiler().compile(pipeline, str(tmp_path / f"{number}.yaml"))
        texts.append((tmp_path / f"{number}.yaml").read_text())
    assert texts[0] == texts[1] and "exit-handler-1" in texts[0] and "lr" in texts[0]
