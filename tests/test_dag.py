"""The tasks of a pipeline, from the API's JSON: what failed first, what fell with it, what never ran."""

import random

from check_failed_run.analysis.dag import read_dag
from check_failed_run.sources.vertex import pipeline_record
from tests.vertex_builder import EXITED, Builder

DAG = "The DAG failed because some tasks failed. The failed tasks are: [{}]."


def names(tasks):
    return [task.name for task in tasks]


def dag_of(builder: Builder, **options):
    return read_dag(pipeline_record(builder.build(), **options))


def chain(**train) -> Builder:
    b = Builder()
    b.task("load", end=5)
    b.task("train", after=("load",), **{"state": "FAILED", "start": 5, "end": 30, "error": (3, EXITED), **train})
    b.task("register", "NOT_TRIGGERED", 30, after=("train",))
    return b


def test_a_chain():
    dag = dag_of(chain())
    assert names(dag.failed) == names(dag.independent) == ["train"]
    assert names(dag.not_triggered) == ["register"]
    assert dag.last_succeeded.name == "load"
    assert dag.counts == {"FAILED": 1, "NOT_TRIGGERED": 1, "SUCCEEDED": 1}
    assert list(dag.blast.values()) == [["register"]]


def test_the_root_and_groups_carry_no_blame():
    b = Builder()
    group = b.task("exit-handler-1", "FAILED", 0, 31, group=True, error=(9, DAG.format("train")))
    b.task("train", "FAILED", 5, 30, parent=group, error=(3, EXITED))
    dag = dag_of(b)
    assert names(dag.failed) == ["train"]
    assert names(dag.leaves) == ["train"]


def test_the_order_of_the_list_means_nothing():
    b = chain()
    b.task("other", "FAILED", 1, 12, error=(3, EXITED))
    job = b.build()
    expected = names(read_dag(pipeline_record(job)).failed)
    assert expected == ["other", "train"]
    for seed in range(5):
        random.Random(seed).shuffle(job["jobDetail"]["taskDetails"])
        assert names(read_dag(pipeline_record(job)).failed) == expected


def test_independent_failures_and_one_that_followed():
    b = Builder()
    b.task("left", "FAILED", 1, 12, error=(3, EXITED))
    b.task("right", "FAILED", 1, 20, error=(3, EXITED))
    b.task("cleanup", "FAILED", 21, 22, after=("left",), error=(3, EXITED), triggerPolicy={"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"})
    dag = dag_of(b)
    assert names(dag.independent) == ["left", "right"]
    assert names(dag.followed) == ["cleanup"]


def test_tasks_without_details_never_ran():
    b = Builder()
    b.task("load", end=5)
    b.task("train", "FAILED", 5, 30, after=("load",), error=(3, EXITED))
    group = b.task("condition-2", details=False, after=("train",), group=True)
    b.task("deploy", details=False, parent=group)
    b.task("announce", details=False, parent=group, after=("deploy",))
    dag = dag_of(b)
    assert names(dag.not_triggered) == ["announce", "deploy"]
    assert dag.blast[dag.failed[0].id] == ["announce", "deploy"]


def test_a_running_job_has_tasks_that_wait():
    b = Builder("RUNNING", end=None)
    b.task("train", "RUNNING", 5)
    b.task("register", details=False, after=("train",))
    dag = dag_of(b)
    assert names(dag.running) == ["train"]
    assert dag.not_triggered == [] and dag.counts == {"PENDING": 1, "RUNNING": 1}


def test_a_failed_branch_settles_what_waits_for_it_while_the_job_runs_on():
    b = Builder("RUNNING", end=None)
    b.task("left", "FAILED", 1, 12, error=(3, EXITED))
    b.task("after-left", details=False, after=("left",))
    b.task("right", "RUNNING", 1)
    b.task("after-right", details=False, after=("right",))
    dag = dag_of(b)
    assert names(dag.not_triggered) == ["after-left"]


def test_loop_iterations_share_names_but_not_ids():
    b = Builder()
    loop = b.task("for-loop-1", "FAILED", 0, 40, group=True, error=(9, DAG.format("for-loop-1-0")))
    for number in range(4):
        one = b.task(f"for-loop-1-{number}", "FAILED" if number % 2 else "SUCCEEDED", 1, 30, parent=loop, loop_of=loop)
        b.task("prepare", "SUCCEEDED", 1, 2, parent=one)
        b.task("train", "FAILED" if number % 2 else "SUCCEEDED", 2, 20 + number, parent=one, after=("prepare",), **({"error": (3, EXITED)} if number % 2 else {}))
        if number % 2 == 0:
            b.task("score", "SUCCEEDED", 24, 25, parent=one, after=("train",))
        else:
            b.task("score", details=False, parent=one, after=("train",))
    dag = dag_of(b)
    assert names(dag.failed) == ["train", "train"] == names(dag.independent)
    assert len({task.id for task in dag.failed}) == 2
    assert names(dag.not_triggered) == ["score", "score"]
    assert dag.counts == {"FAILED": 2, "NOT_TRIGGERED": 2, "SUCCEEDED": 8}


def test_retries_count_the_attempts_and_a_success_after_them_is_no_failure():
    b = chain(failed_lines=[["boom"], ["boom"]])
    pipeline = pipeline_record(b.build())
    train = next(task for task in pipeline.tasks if task.name == "train")
    assert train.attempts == 3 and len(train.jobs) == 3
    well = Builder("SUCCEEDED")
    well.task("train", "SUCCEEDED", 1, 9, failed_lines=[["boom"]])
    dag = dag_of(well)
    assert dag.failed == [] and dag.last_succeeded.attempts == 2


def test_cache_hits_and_cancelled_tasks_are_no_failures():
    b = chain()
    b.task("vocab", "SKIPPED", 31, 32, ran=False)
    b.task("slow", "CANCELLED", 1, 33)
    dag = dag_of(b)
    assert names(dag.failed) == ["train"]
    assert names(dag.cancelled) == ["slow"]
    assert dag.last_succeeded.name == "vocab" and dag.last_succeeded.cached


def exit_handler(own_state: str = "RUNNING", **own) -> Builder:
    b = Builder("RUNNING", end=None)
    group = b.task("guard", "FAILED", 0, 31, group=True, error=(9, DAG.format("train")))
    b.task("train", "FAILED", 5, 30, parent=group, error=(3, EXITED))
    b.task("last-words", own_state, 32, after=("guard",), exit_task=True, **own)
    return b


def test_the_exit_task_that_asks_leaves_itself_out():
    for options in ({"exit_handler": True}, {}):
        dag = dag_of(exit_handler(), **options)
        assert names(dag.failed) == ["train"]
        assert dag.running == [] and names(dag.leaves) == ["train"]
    b = exit_handler("FAILED", end=33, error=(3, EXITED), image="repo/check-failed-run:1")
    assert names(dag_of(b).failed) == ["train"]


def test_an_exit_task_of_somebody_else_that_failed_counts():
    assert names(dag_of(exit_handler("FAILED", end=33, error=(3, EXITED))).failed) == ["train", "last-words"]


def test_the_asker_is_known_by_its_task_id():
    b = exit_handler()
    own = b.task("plain", "RUNNING", 32, spec=False)
    dag = dag_of(b, own_task=own)
    assert "plain" not in names(dag.leaves)


def test_states_are_not_trusted_alone():
    b = chain(state="RUNNING")
    job = b.build()
    detail = next(d for d in job["jobDetail"]["taskDetails"] if d["taskName"] == "train")
    detail["pipelineTaskStatus"] = [{"state": "RUNNING"}, {"state": "FAILED", "error": {"code": 3, "message": EXITED}}]
    detail.pop("error", None)
    record = pipeline_record(job)
    train = next(task for task in record.tasks if task.name == "train")
    assert (train.state, train.error_message, train.exit_code) == ("FAILED", EXITED, 1)


def test_a_groups_error_names_a_child_whose_state_is_open():
    b = Builder("RUNNING", end=None)
    group = b.task("exit-handler-1", "FAILED", 0, 31, group=True, error=(9, DAG.format("train")))
    b.task("train", "RUNNING", 5, parent=group)
    b.task("fine", "RUNNING", 5, parent=group)
    assert names(dag_of(b).failed) == ["train"]


def test_an_error_that_was_retried_is_not_the_failure():
    b = Builder("SUCCEEDED")
    b.task("train", "SUCCEEDED", 1, 9)
    job = b.build()
    detail = next(d for d in job["jobDetail"]["taskDetails"] if d["taskName"] == "train")
    detail["pipelineTaskStatus"] = [{"state": "RUNNING", "error": {"code": 13, "message": "Internal error happened"}}, {"state": "SUCCEEDED"}]
    train = next(task for task in pipeline_record(job).tasks if task.name == "train")
    assert train.state == "SUCCEEDED" and train.error_message is None


def test_a_job_without_spec_or_root_or_details():
    b = chain()
    job = b.build()
    del job["pipelineSpec"]
    assert names(read_dag(pipeline_record(job)).failed) == ["train"]
    job["jobDetail"]["taskDetails"] = [{k: v for k, v in d.items() if k != "parentTaskId"} for d in job["jobDetail"]["taskDetails"] if d["taskName"] != job["name"].rsplit("/", 1)[-1]]
    assert names(read_dag(pipeline_record(job)).failed) == ["train"]
    assert read_dag(pipeline_record({"name": "x", "state": "PIPELINE_STATE_FAILED"})).failed == []
    assert pipeline_record({}).tasks == []


def test_nested_groups_hand_their_dependencies_down():
    b = Builder()
    outer = b.task("exit-handler-1", "FAILED", 0, 50, group=True)
    b.task("train", "FAILED", 5, 30, parent=outer, error=(3, EXITED))
    middle = b.task("condition-2", "NOT_TRIGGERED", 30, parent=outer, after=("train",), group=True)
    inner = b.task("for-loop-3", details=False, parent=middle, group=True)
    b.task("evaluate", details=False, parent=inner)
    dag = dag_of(b)
    assert names(dag.not_triggered) == ["evaluate"]
    assert dag.blast[dag.failed[0].id] == ["evaluate"]


def test_a_spec_of_another_shape_costs_only_the_order():
    for spec in ({"root": []}, {"root": {"dag": {"tasks": [1]}}}, {"components": "x", "root": {"dag": {"tasks": {"train": None}}}}, "text", {"root": {"dag": {"tasks": {"train": {"dependentTasks": [{}]}}}}}):
        job = chain().build() | {"pipelineSpec": spec}
        dag = read_dag(pipeline_record(job))
        assert names(dag.failed) == ["train"] and names(dag.not_triggered) == ["register"]


def test_large_pipelines_are_read_quickly():
    import time

    b = Builder()
    for number in range(500):
        b.task(f"t{number}", "FAILED" if number == 250 else "SUCCEEDED" if number < 250 else "NOT_TRIGGERED", number, number + 1, after=(f"t{number - 1}",) if number else (), ran=False)
    job = b.build()
    started = time.process_time()
    dag = dag_of(b)
    assert len(dag.not_triggered) == 249 and dag.blast[dag.failed[0].id] == sorted({f"t{n}" for n in range(251, 500)})
    assert time.process_time() - started < 10, len(str(job))
