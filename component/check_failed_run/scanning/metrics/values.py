"""Numbers and names in metric lines: every spelling to one float, every trainer's name to one canonical name."""

from __future__ import annotations

import math
import re
from functools import lru_cache

MAX_VALUES = 24

NUMBER = (
    r"[-+]?(?:\d+(?:,\d{3})*(?:\.#[A-Z]+\w*|\.\d+|\.(?!\w))?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?"
    r"|nan(?:\(\w*\)|xxx|\.0)?|NaN|NAN|Nan|inf(?:inity|\.0)?|Inf(?:inity)?|INF)"
)
"""Pattern text of a number, as C, C++, Python, JavaScript, numpy and the Windows runtime print it."""

_SUFFIX = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}


def parse_number(text: str) -> float:
    """A number as a program prints it; NaN and infinities in every spelling. Raises ValueError for anything else."""
    try:
        return float(text)  # also nan, -nan, inf, Infinity
    except ValueError:
        pass
    t = text.strip().strip("'\"[]()")
    low = t.lower()
    if low.endswith(("nan.0", "inf.0")):  # Lightning's bar cuts a number to five characters or fills it up
        return float(low[:-2])
    if "nan" in low or "#ind" in low or "#qnan" in low or "#snan" in low:
        if re.fullmatch(r"[-+]?(?:tensor\()?nan(?:\([^)]{0,30}\)?|xxx\w{0,20})?|[-+]?1\.#(?:ind|qnan|snan)\d*", low):
            return math.nan
        raise ValueError(text)
    if "#inf" in low and re.fullmatch(r"[-+]?1\.#inf\d*", low):
        return -math.inf if low[0] == "-" else math.inf
    if low.startswith("tensor("):
        return parse_number(t[7:].split(",")[0])
    scale = 1.0
    if t and t[-1] in _SUFFIX and len(t) > 1 and t[-2] in "0123456789.":
        scale, t = _SUFFIX[t[-1]], t[:-1]
    if t.endswith("%"):
        t = t[:-1]
    if "," in t and re.fullmatch(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?", t):
        t = t.replace(",", "")
    if not t or (t[-1] not in "0123456789." and "inf" not in low):
        raise ValueError(text)
    return float(t) * scale


_STEP = frozenset(
    ["step", "steps", "global_step", "globalstep", "global_steps", "iter", "iters", "iteration", "iterations", "num_updates", "update", "updates", "num_batches_trained", "optimizer_step", "trainer/global_step", "total_timesteps", "train_step", "train_steps", "itr", "it", "n_updates", "_step", "batch_idx", "batch", "current_steps", "current_step", "micro_step"]
)
_FIRM_STEP = frozenset(["global_step", "globalstep", "num_updates", "global_steps", "trainer/global_step", "total_timesteps", "optimizer_step", "current_steps"])
_EPOCH = frozenset(["epoch", "epochs", "ep", "num_epochs", "epoch_num", "current_epoch"])
_LR = re.compile(r"(?:base_|cur_|current_|last_|max_)?(?:lr|learning_rate)(?:[_/-]?(?:pg)?\d+|_group\w*|-\w+|/\w+)?$|(?:opt\w*|optim\w*|schedule\w*)[/_.]lr$")
_GRAD = frozenset(
    ["grad_norm", "gnorm", "gradient_norm", "gradnorm", "global_grad_norm", "total_grad_norm", "grad_norm_total", "grad_total_norm", "total_norm", "grad", "gradient_global_norm", "grad_2.0_norm_total", "grad_norm_before_clip", "grad_l2_norm", "l2_norm/grad/global", "optim/total_grad_norm", "grad_norm/global", "raw_grad_norm", "learning/raw_grad_norm", "learning/grad_norm", "norm", "global_norm", "|g|", "g_norm"]
)
_LOSS = frozenset(
    ["loss", "lm_loss", "total_loss", "train_loss", "training_loss", "reduced_train_loss", "loss/total", "loss_total", "total/loss", "trainloss", "train_total_loss", "loss_metrics/global_avg_loss", "optim/loss", "learning/loss", "ce_loss/train", "crossentropyloss", "train_inner_loss", "total_train_loss", "policy_loss/total"]
)
_LOSS_MEAN = frozenset(
    ["avr_loss", "avg_loss", "average_loss", "mean_loss", "running_loss", "runningloss", "loss_avg", "loss/average", "loss_epoch", "loss_step", "loss_mean", "batch_loss", "loss_batch", "step_loss", "loss/current", "smooth_loss", "smoothed_loss", "epoch_loss", "ema_loss", "loss_ema", "cur_loss", "current_loss"]
)
_SCALE = frozenset(["loss_scale", "scale", "amp_scale", "grad_scale", "loss_scaling", "lossscale", "scaler"])
_MEMORY = frozenset(["memory", "mem", "max_mem", "gpu_mem", "max_memory", "mem_alloc", "memallocated", "maxmemallocated", "peak_memory", "gpu_memory", "vram", "max_mem_allocated", "cuda_mem", "gpu_mem_gb", "peak_mem"])
_THROUGHPUT = re.compile(
    r"(?:samples?|tokens?|tok|tokens_seen|img|images?|imgs|ex|examples?|it|iters?|steps?|seq|seqs|sequences|batch|batches|frames?|sents?|words?)"
    r"(?:_per_|/|_/_|_)s(?:ec|econd)?\b|^(?:wps|tps|tgs|fps|throughput|sps|ips|runningavgsamplespersec|currsamplespersec|tokens_per_gpu_per_sec\w*|speed|throughput/\w+_per_sec|"
    r"train_speed|throughput_per_gpu|qps)$"
)
_STEP_TIME = re.compile(
    r"^(?:s|ms|sec|secs|seconds)/(?:it|iter|step|batch)$|^(?:step_time|iter_time|time_per_(?:step|iter)|elapsed_time_per_iteration|(?:train_)?step_timing_in_s|batch_time|"
    r"seconds|sec|time|step_s|t|batch_cost|avg_batch_cost|dt|time/step|batch_\(t\)|s/step|iteration_time|step_timing|time_per_iteration)$"
)
_IGNORED = re.compile(
    r"^(?:eta|v_num|percentage|elapsed\w*|remaining\w*|wall|uptime|seed|rank|local_rank|world_size|pid|host|port|line|lr_scheduler\w*|epochs_total|max_steps|total_steps|"
    r"num_workers|batch_size|global_batch_size|micro_batch_size|bsz|train_runtime|consumed_samples|weight_decay|wd|momentum|mom|betas?|dropout|max_\w*steps|total_weights|"
    r"total|version|node|device|job|size|num_params|params|ts|timestamp|time_stamp|data_time|avg_reader_cost|avg_samples|warmup\w*|train_wall|clip|gb_free|ups|wpb|"
    r"loss_(?:weights?|type|fn|function|scale_window|coef\w*|lambda|reduction|name|window)|\w*_(?:weight|coef|coeff|lambda|decay|ratio|prob|smoothing|threshold|patience|interval|steps|size|dim|every|freq)"
    r"|(?:min|initial|init|max|static|dynamic|fp16|start|target|new|old|best|prev|previous|min_delta)_?\w*loss\w*|base_score|max_grad_norm|clip_grad_norm|clip_grad|gradient_clip\w*|grad_clip\w*)$"
)
_SCORE = re.compile(
    r"loss|(?:^|[_/.@-])(?:acc|accuracy|auc|auroc|f1|ppl|perplexity|rmse|mae|mse|mape|nll|logloss|bleu|rouge\w*|wer|cer|map|map50|iou|miou|dice|reward|rewards?|return|"
    r"kl|err|error|score|top_?[15]|ndcg|r2|mcc|psnr|ssim|fid|elbo|entropy|l1|l2|em|bpb|bpc|precision|recall|success|merror|aucpr|auprc|sacrebleu|pearson\w*|spearman\w*|gini|"
    r"acc\w*|ap|ap50|ar|silog|ce|bce|ctc|silhouette|mrr|hit\w*|fitness)(?:$|[_/.@\d-])|accuracy|\breward|rewards?/|perplexity|rew_mean|_acc|crossentropy|logloss|ndcg|[a-z]*rmse"
)
_EVAL_WORDS = frozenset(["val", "valid", "validation", "validate", "eval", "evaluation", "evaluate", "test", "testing", "dev", "predict", "holdout", "heldout", "valid_0", "valid_1", "validation_0", "validation_1", "evals"])
_TRAIN_WORDS = frozenset(["train", "training", "tr", "train_inner", "learn", "dtrain", "trn"])
_PREFIX = re.compile(r"(?:metrics[/_.])?(val|valid|validation|eval|evaluation|test|dev|holdout|heldout|held_out|predict|train|training)(?:[_/.]|$)+(.*)$")
_SUFFIX_PHASE = re.compile(r"(.+?)[_/.](val|valid|validation|eval|test|dev|holdout|train|training)$")


@lru_cache(maxsize=8192)
def canonical(name: str, phase: str) -> tuple[str, str, bool, str]:
    """What a printed name stands for.

    ``phase`` is "train" or "eval", as the rest of the line has it. Gives (role, name, measured, phase):
    role is "value", "mean" (a loss that counts only where no plainer one stands beside it), "step", "firm-step",
    "epoch", "total" or "" (not a metric); ``measured`` says that only a running program can know it.
    """
    n = name.strip().strip(":=,;|'\"").lower()
    unit = ""
    if n.endswith(")") and "(" in n:
        n, _, unit = n.partition("(")
        n, unit = n.strip(), unit.rstrip(")")
    n = re.sub(r"[\s-]+", "_", n.strip()).strip("_.").replace("__", "_")
    if not n or len(n) > 80:
        return "", "", False, phase
    if n in ("max_steps", "total_steps", "num_steps"):
        return "total", n, False, phase
    if n in _STEP:
        return ("firm-step" if n in _FIRM_STEP else "step"), n, False, phase
    if n in _EPOCH:
        return "epoch", n, False, phase
    # which phase does the name itself say?
    base = n
    own = phase
    if m := _PREFIX.match(n):
        own = "train" if m[1] in ("train", "training") else "eval"
        base = m[2] or n
        if m[1] == "predict":
            base = base or "x"
    elif m := _SUFFIX_PHASE.match(n):
        own = "train" if m[2] in ("train", "training") else "eval"
        base = m[1]
    elif "/" in n:
        for part in n.split("/"):
            if part in _EVAL_WORDS or part in _TRAIN_WORDS:
                own = "eval" if part in _EVAL_WORDS else "train"
                base = "/".join(p for p in n.split("/") if p != part)
                break
    if base in _STEP:
        return "step", base, False, own
    if base in _EPOCH:
        return "epoch", base, False, own
    if own == "train":
        if _LR.match(base):
            return "value", "lr", False, own
        if base in _GRAD or n in _GRAD:
            return "value", "grad_norm", base not in ("grad", "norm", "total_norm"), own
        if n in _LOSS or base in _LOSS:
            return "value", "loss", True, own
        if base in _LOSS_MEAN or n in _LOSS_MEAN:
            return "mean", "train_" + base, True, own
        if base in _SCALE:
            return "value", "loss_scale", False, own
        if base in _MEMORY:
            return "value", "memory", False, own
        if base in ("skipped", "number_of_skipped_iterations", "skipped_steps"):
            return "value", "skipped_iterations", False, own
        if base in ("nans", "number_of_nan_iterations"):
            return "value", "nan_iterations", False, own
        if unit.lower() in ("s/it", "s/iter", "s/step"):
            return "value", "step_time", False, own
        if _THROUGHPUT.search(base) or (unit and _THROUGHPUT.search(unit.lower())):
            return "value", "throughput", False, own
        if _STEP_TIME.match(base):
            return "value", "step_time_ms" if "ms" in (unit.lower(), base[:2]) else "step_time", False, own
    if _IGNORED.match(base) or "best" in n:
        return "", "", False, own
    if own == "eval":
        if base in _LOSS or base in _LOSS_MEAN:
            base = "loss"
        if base in ("runtime", "lr", "learning_rate", "time", "data_time"):
            return "", "", False, own
        return "value", "eval_" + base, bool(_SCORE.search(base)), own
    if "loss" in base and re.search(r"(?:^|_)loss$", base):
        return "mean", "train_" + base, True, own
    return "value", "train_" + base, bool(_SCORE.search(base)), own


class Draft:
    """Collects what one line says and becomes a point's fields."""

    __slots__ = ("epoch", "firm", "means", "measured", "phase", "step", "total_epochs", "total_steps", "values")

    def __init__(self, phase: str = "train"):
        self.phase = phase
        self.step: int | None = None
        self.firm = False
        self.epoch: float | None = None
        self.total_steps: int | None = None
        self.total_epochs: float | None = None
        self.values: dict[str, float] = {}
        self.means: list[tuple[str, float]] = []
        self.measured = False

    def add(self, name: str, text: str, unit: str = "") -> None:
        """Take ``name`` with its printed number; names that are no metric are dropped."""
        role, key, measured, _ = canonical(name, self.phase)
        if not role:
            return
        try:
            value = parse_number(text)
        except ValueError:
            return
        if role == "value":
            if key == "step_time_ms" or (key == "step_time" and unit == "ms"):
                key, value = "step_time", value / 1000
            if key not in self.values:
                self.values[key] = value
        elif role == "mean":
            self.means.append((key, value))
        elif math.isfinite(value):
            if role == "epoch":
                if self.epoch is None:
                    self.epoch = value
            elif role == "total":
                self.total_steps = self.total_steps or int(value)
            elif self.step is None or (role == "firm-step" and not self.firm):
                if self.step is not None:
                    self.total_steps = None
                self.step, self.firm = int(value), role == "firm-step"
            return
        self.measured = self.measured or measured

    def finish(self) -> None:
        """Decide which of several losses is the loss."""
        if self.means:
            if "loss" not in self.values and self.phase == "train":
                plain = [i for i, (k, _) in enumerate(self.means) if k[6:] in _LOSS_MEAN]
                if plain or len(self.means) == 1:
                    _, value = self.means.pop(plain[0] if plain else 0)
                    self.values = {"loss": value, **self.values}
            for key, value in self.means:
                self.values.setdefault(key, value)
            self.means = []

    @property
    def kind(self) -> str:
        if any(k == "loss" or k.startswith("train_") or k == "grad_norm" for k in self.values):
            return "train"
        if any(k.startswith("eval_") for k in self.values):
            return "eval"
        return "progress"
