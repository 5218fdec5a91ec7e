"""Exact commands, built from the run's own launch command.

A launch command is text that a log printed, so it is parsed and quoted again, token by token, and taken only where it is one simple
command of a known launcher. Flags are changed where the command has them; they are added only for programs that are known to take them.
"""

from __future__ import annotations

import re
import shlex

LAUNCHERS = re.compile(
    r"^(?:python[\d.]*|torchrun|accelerate|accelerate-launch|deepspeed|horovodrun|mpirun|mpiexec|srun|sbatch|qsub|ray|tune|axolotl|"
    r"llamafactory-cli|lightning|fabric|fairseq-train|fairseq-hydra-train|yolo|colossalai|composer|nemo|nemo_run|xrun|autotrain|swift|"
    r"paddleocr|spacy|bash|sh|uv|poetry|nohup|env|time|numactl|singularity|apptainer|[\w.-]+\.(?:py|sh))$"
)
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=")
_BARE = re.compile(r"^(?:[\w@%+=:,./\[\]-]|\$\w+|\$\{\w+\})+$")  # words that may stay unquoted; plain variables are kept alive

BATCH_SIZE = ("per_device_train_batch_size", "per_gpu_train_batch_size", "micro_batch_size", "train_micro_batch_size_per_gpu", "train_batch_size", "batch_size", "batch", "bs")
EVAL_BATCH_SIZE = ("per_device_eval_batch_size", "eval_batch_size", "val_batch_size", "validation_batch_size")
LEARNING_RATE = ("learning_rate", "lr", "base_lr", "peak_lr", "max_lr", "lr0", "optimizer_lr")
GRAD_CLIP = ("max_grad_norm", "grad_clip", "gradient_clip_val", "clip_grad_norm", "clip_grad", "clip_norm", "max_norm", "gradient_clipping")
ACCUMULATION = ("gradient_accumulation_steps", "accumulate_grad_batches", "grad_accum_steps", "grad_accum", "accumulation_steps", "update_freq")
WORKERS = ("dataloader_num_workers", "num_workers", "workers")
MASTER_PORT = ("master_port", "main_process_port")
RESUME = ("resume_from_checkpoint", "resume_from", "resume_ckpt", "resume_path", "ckpt_path", "restore_file", "load_checkpoint", "resume")

# Frameworks that go on from their own newest checkpoint when the same command is started again.
AUTO_RESUME = frozenset({"speechbrain", "maxtext", "t5x", "torchtitan", "tensorflow-estimator"})


def normalise(command: str | None) -> str | None:
    """One simple command, quoted again token by token; None where it is not one, or not a launcher's."""
    if not command or any(ord(c) < 32 and c != "\t" for c in command):
        return None
    try:
        lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        lexer.commenters = ""
        words = list(lexer)
    except ValueError:
        return None
    if not words or any(word and set(word) <= set("();<>|&") for word in words) or "`" in command or "$(" in command:
        return None
    program = _program(words)
    if program is None or not LAUNCHERS.match(program.rsplit("/", 1)[-1]):
        return None
    if re.match(r"python[\d.]*$", program.rsplit("/", 1)[-1]) and "-c" in words[:4]:
        return None
    if program.rsplit("/", 1)[-1] in ("bash", "sh") and any(word.startswith("-") and "c" in word for word in words[1:3]):
        return None
    return join(words)


def _program(words: list[str]) -> str | None:
    for word in words:
        if not _ASSIGNMENT.match(word):
            return word
    return None


def join(words: list[str]) -> str:
    """Quote and join; ``$NAME`` stays a variable, everything else that a shell would read becomes literal."""
    return " ".join(word if _BARE.match(word) else shlex.quote(word) for word in words)


def _same(flag: str, names: tuple[str, ...]) -> bool:
    plain = flag.replace("-", "_").lower()
    return plain in names or plain.rsplit(".", 1)[-1].rsplit("/", 1)[-1] in names


def _find(words: list[str], names: tuple[str, ...]) -> tuple[int, str] | None:
    """Where a flag's value stands: (index of the word, prefix to keep before the value); the last one counts."""
    found = None
    for i, word in enumerate(words):
        if i == 0:
            continue
        if word.startswith("-"):
            flag, equals, _ = word.lstrip("-").partition("=")
            if not _same(flag, names) or (not word.startswith("--") and len(flag) < 2):
                continue
            if equals:
                found = (i, word[: word.index("=") + 1])
            elif i + 1 < len(words) and (not words[i + 1].startswith("-") or re.match(r"-[\d.]", words[i + 1])):
                found = (i + 1, "")
        elif "=" in word and (m := re.match(r"^(\+{0,2}[A-Za-z_][\w./-]*)=", word)) and _same(m.group(1).lstrip("+"), names) and _after_program(words, i):
            found = (i, m.group(0))
    return found


def _after_program(words: list[str], index: int) -> bool:
    """Whether ``key=value`` at ``index`` is an argument, not an environment variable before the program."""
    return any(not _ASSIGNMENT.match(word) for word in words[:index])


def get_flag(command: str, names: tuple[str, ...]) -> str | None:
    """The value that ``command`` gives to the first of ``names`` that it has."""
    words = shlex.split(command)
    for name in names:
        if place := _find(words, (name,)):
            return words[place[0]][len(place[1]) :]
    return None


def set_flag(command: str, names: tuple[str, ...], value: object) -> str | None:
    """``command`` with the value of a flag replaced: ``--flag v``, ``--flag=v``, Hydra's ``a.flag=v``.

    ``names`` are tried in order, ``-`` and ``_`` alike. None where the command has none of them: no flag is ever invented.
    """
    words = shlex.split(command)
    for name in names:
        if place := _find(words, (name,)):
            index, prefix = place
            words[index] = f"{prefix}{value}"
            return join(words)
    return None


def set_environment(command: str, name: str, value: str) -> str:
    """``command`` with an environment variable before it."""
    words = [word for word in shlex.split(command) if not word.startswith(f"{name}=")]
    return join([f"{name}={value}", *words])


def resume_command(command: str | None, framework: str, checkpoint: str | None) -> str | None:
    """The launch command that goes on from ``checkpoint``; None where the way to resume is not known."""
    if not command:
        return None
    words = shlex.split(command)
    framework = framework.lower()
    program = (_program(words) or "").rsplit("/", 1)[-1]
    script = next((word.rsplit("/", 1)[-1] for word in words if word.endswith(".py")), "")
    flags = {word.lstrip("-").partition("=")[0].replace("-", "_") for word in words if word.startswith("--")}
    megatron = framework in ("megatron", "megatron-lm") or (script.startswith("pretrain_") and "tensor_model_parallel_size" in flags)
    if checkpoint:
        place = next((found for name in RESUME if (found := _find(words, (name,)))), None)
        if place and words[place[0]][len(place[1]) :].lower() not in ("true", "false", "1", "0", "latest", "auto", "last", "none", "null", "allow", "must"):
            words[place[0]] = place[1] + checkpoint
            return join(words)
        if place:
            return None if words[place[0]][len(place[1]) :].lower() in ("false", "0", "none", "null") else join(words)
        if megatron:
            root = re.sub(r"/iter_\d+/*$", "", checkpoint)
            return set_flag(command, ("load",), root) or join([*words, "--load", root])
        if program == "llamafactory-cli":
            return join([*words, f"resume_from_checkpoint={checkpoint}"])
        if program == "axolotl" and "train" in words:
            return join([*words, f"--resume-from-checkpoint={checkpoint}"])
        if program == "fairseq-train":
            return join([*words, "--restore-file", checkpoint])
        if "output_dir" in flags and flags & {"per_device_train_batch_size", "num_train_epochs", "save_steps", "save_strategy"}:
            # Only HfArgumentParser scripts take these flags together, and TrainingArguments has resume_from_checkpoint.
            return join([*words, "--resume_from_checkpoint", checkpoint])
        if framework == "lightning" and "fit" in words:
            return join([*words, "--ckpt_path", checkpoint])
        if framework == "timm" and script == "train.py":
            return join([*words, "--resume", checkpoint])
        if program == "yolo" and "train" in words:
            without = [word for word in words if not word.startswith(("model=", "resume"))]
            return join([*without, f"model={checkpoint}", "resume=True"])
    if "--resume" in words:
        return join(words)
    if framework == "nanogpt":
        return set_flag(command, ("init_from",), "resume") or join([*words, "--init_from=resume"])
    if program == "tune" and "run" in words:
        return set_flag(command, ("resume_from_checkpoint",), "True") or join([*words, "resume_from_checkpoint=True"])
    if framework == "nemo" and any("exp_manager." in word for word in words):
        return set_flag(command, ("resume_if_exists",), "true") or join([*words, "exp_manager.resume_if_exists=true"])
    if framework == "detectron2" and script == "train_net.py":
        return join([*words, "--resume"])
    if framework in ("mmengine", "mmdetection", "mmdet", "mmseg", "mmsegmentation", "mmocr", "mmpretrain") and script == "train.py":
        return join([*words, "--resume"])
    if framework in AUTO_RESUME:
        return join(words)
    return None


def half(value: str | None) -> str | None:
    """Half of a batch size as text; None where there is no smaller one."""
    try:
        number = int(str(value))
    except ValueError:
        return None
    return str(number // 2) if number > 1 else None


def number_text(value: float) -> str:
    """A short plain spelling of a number: 3e-05, 0.0003, 2."""
    return f"{value:.6g}"
