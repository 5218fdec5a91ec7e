"""Names and numbers in running text: Megatron, NeMo, DeepSpeed, nanoGPT, timm, OpenMMLab, detectron2, fairseq, MaxText, plain loops."""

from __future__ import annotations

import re

from check_failed_run.scanning.metrics.values import NUMBER, Draft, canonical

_PAIR = re.compile(
    r"(?<![\w.@%-])(?<![A-Za-z_]/)(?<!\./)([A-Za-z_][\w/.@|%-]*+(?:\([\w/]{1,12}\))?)['\"]?[\s=:\[(]{1,8}(?:tensor\()?"
    rf"({NUMBER})(?:\s?(?:/|of)\s?(\d[\d,]*))?(ms|s|%|[kKMGT]i?B?)?(?![\w]|[-:.]\d|\.\w)"
)
_BEFORE = re.compile(r"([A-Za-z]+)[ -]$")
_AFTER_EPOCH = re.compile(r"\]?\s?\[\s*(\d+)\s?/\s?(\d+)\s?[\](]")
_LEADING = re.compile(r"(?:train|test|val|valid)[ :]{1,3}(\d+) \[", re.I)
_BRACKET = re.compile(r"\[\s*(\d+)\s*/\s*(\d+)\s*(?=[\](])")
_FAIRSEQ = re.compile(r"(?:: {1,6}|\| {1,6})(\d+) ?/ {0,6}(\d+) ")  # fairseq; torch's word language model example
_TUTORIAL = re.compile(r"\[(\d+), +(\d+)\] loss")  # torch's CIFAR tutorial
_INDEX = re.compile(r"\s{0,12}(\d{1,9})(?:/(\d{1,9}))? ?\| ")  # "  350 | train_loss 3.6"
_UNBOUNDED = re.compile(r"(\d+)it \[")  # tqdm without a total
_CLU = re.compile(r"\[ {0,8}(\d+)\] (?=[a-z_]+=)")
_RATE = re.compile(r"(?<![\d.,])(\d[\d.,]*+[kKM]?)\s*+(?:samples?|tokens?|toks?|img|images?|imgs|ex|examples?|it|iters?|steps?|batch(?:es)?|seqs?|frames?)\s?/\s?s(?:ec)?\b")
_STEP_TIME = re.compile(r"(?<![\d.])(\d[\d.]*+) ?(ms|s|sec)/(?:it|iter|step|batch)\b")
_EVAL = re.compile(r"(?:^|[\s\[(|])(?:eval(?:uation|uating)?|valid(?:ation|ating)?|val|test(?:ing)?|dev|held[- ]?out|holdout|epoch\(val\)|epoch\(test\)|iter\(val\))(?=[\s\]):|,-]|$)")
# a report of one split: "forest/held-out: auc=0.41 accuracy=0.33"
SPLIT = re.compile(r"(?i)(?:^|\s)(?:[\w.-]{1,40}/)?(train(?:ing)?|val(?:id(?:ation)?)?|test|dev|eval(?:uation)?|held[- ]?out|holdout)(?: set| split)?\s?[:|]\s")
_NEVER = re.compile(r"(?:Namespace|Config|Arguments|Args|Settings|Params|Hparams)\(")
_SETTINGS = ("--", "onfig", "ption", "yperparam", "atience", "mprove", "best", "heckpoint", "rolling back", "sing ", "etting")
# words that make one name with the next one: "lm loss", "grad norm", "learning rate"
_SECOND = frozenset(["loss", "norm", "rate", "scale", "acc", "accuracy", "timing", "time", "error", "ppl", "perplexity", "auc", "f1", "score", "wer", "cer", "iou", "dice", "mae", "mse", "rmse", "reward"])
_FIRST = frozenset(["train", "training", "val", "valid", "validation", "test", "eval", "dev", "lm", "grad", "gradient", "learning", "loss", "total", "mean", "avg", "average", "running", "iter", "best", "min", "max", "new"])
_PARTS = frozenset(
    ["box", "cls", "obj", "reg", "mask", "seg", "kl", "ce", "mse", "rec", "recon", "reconstruction", "adv", "gan", "d", "g", "generator", "discriminator", "gen", "disc", "perceptual", "aux", "auxiliary", "policy", "value", "entropy", "contrastive", "nll", "triplet", "cycle", "style", "content", "dice", "focal", "smooth", "critic", "actor", "mel", "feature", "sop", "mlm", "nsp", "vq", "commit", "commitment", "dfl", "rpn"]
)


def _known(key: str) -> bool:
    return not key.startswith(("train_", "eval_"))


def read_pairs(text: str) -> Draft | None:
    """A step or an epoch and at least one measured value."""
    if "(" in text and _NEVER.search(text):
        return None
    if "|" in text and ("consumed" in text or ("iteration" in text and ": " in text)):
        draft = _piped(text)
        if draft is not None:
            return draft
    found = []
    first = -1
    step_at = epoch_at = None
    for m in _PAIR.finditer(text):
        name = m[1]
        low = name.lower()
        start = m.start()
        if low == "time" and start and text[start - 1] == ":":
            continue
        if low in _SECOND and start and (b := _BEFORE.search(text, max(0, start - 16), start)):
            before = b[1].lower()
            if before in _FIRST or (low == "loss" and before in _PARTS):
                name, start = f"{before}_{low}", b.start()
        role, key, measured, _ = canonical(name, "train")
        if role in ("step", "firm-step"):
            if step_at is None or role == "firm-step":
                step_at = m
        elif role == "epoch" or low.startswith(("epoch(", "iter(")):
            if low.startswith("iter("):
                step_at = step_at or m
            else:
                epoch_at = epoch_at or m
        elif role and (measured or role == "mean" or _known(key)):
            if "(" in text[m.end(1) : m.start(2)]:
                continue  # "reward (100 episodes): 12.5"
            value = m[2]
            if m[3] and "acc" in low and value.isdigit() and int(m[3].replace(",", "")):
                value = str(int(value) / int(m[3].replace(",", "")))  # "Accuracy: 9838/10000"
            found.append((name, value, m[4] or ""))
            if measured and first < 0:
                first = start
        if len(found) >= 40:
            break
    if first < 0 and "/s" not in text and "s/" not in text and "PerSec" not in text and "skipped=" not in text:
        return None
    head = text[max(0, first - 160) : first] if first >= 0 else text[:80]
    low = head.lower()
    split = SPLIT.search(text, 0, 120)
    draft = Draft("eval" if (split and not split[1].lower().startswith("train")) or (("val" in low or "test" in low or "dev" in low or "held" in low or "holdout" in low) and _EVAL.search(low)) or "Saving dict for" in text else "train")
    for name, value, unit in found:
        draft.add(name, value, unit)
    try:
        if epoch_at is not None:
            draft.epoch = float(epoch_at[2].replace(",", ""))
            if epoch_at[3]:
                draft.total_epochs = float(epoch_at[3].replace(",", ""))
            elif step_at is None and (b := _AFTER_EPOCH.match(text, epoch_at.end(2))):
                draft.step, draft.total_steps = int(b[1]), int(b[2])
        if step_at is not None:
            draft.step = int(float(step_at[2].replace(",", "")))
            if step_at[3]:
                draft.total_steps = int(step_at[3].replace(",", ""))
    except (ValueError, OverflowError):
        return None
    if draft.step is None:
        if "[" in text:
            if (b := _LEADING.match(text)) and draft.epoch is None:
                draft.epoch = float(b[1])
            if (b := _BRACKET.search(text)) and not (epoch_at is not None and epoch_at[3] == b[2]):
                draft.step, draft.total_steps = int(b[1]), int(b[2])
            elif b := _CLU.search(text):
                draft.step = int(b[1])
            elif b := _TUTORIAL.match(text):
                draft.epoch, draft.step = float(b[1]), int(b[2])
            elif "it [" in text and (b := _UNBOUNDED.search(text)):
                draft.step = int(b[1])
        if draft.step is None and epoch_at is None and (b := _INDEX.match(text)):
            draft.step = int(b[1])
            draft.total_steps = int(b[2]) if b[2] else draft.total_steps
        if draft.step is None and epoch_at is not None and (b := _FAIRSEQ.search(text)):
            draft.step, draft.total_steps = int(b[1]), int(b[2])
    elif draft.total_steps is None and epoch_at is not None and (b := _FAIRSEQ.search(text)) and int(b[1]) == draft.step:
        draft.total_steps = int(b[2])  # the first epoch, where updates and batches count alike
    elif draft.total_steps is None and " | " in text and (b := re.search(r"iteration (\d+)/(\d+)", text)) and int(b[1]) == draft.step:
        draft.total_steps = int(b[2])
    anchored = draft.step is not None or draft.epoch is not None
    if "/" in text:
        if "throughput" not in draft.values and "/s" in text and (r := _RATE.search(text)):
            draft.add("samples/s", r[1])
        if "step_time" not in draft.values and ("s/" in text or "sec/" in text) and (r := _STEP_TIME.search(text)):
            draft.add("step_time", r[1], r[2])
    draft.finish()
    values = draft.values
    loss = "loss" in values or "eval_loss" in values
    if draft.measured:
        if not anchored and not (loss and len(values) > 1) and not split:
            return None
    elif draft.step is None or not ("throughput" in values or "step_time" in values or "skipped_iterations" in values):
        return None
    if any(w in text for w in _SETTINGS) and not (draft.measured and draft.step is not None and loss and "rolling" not in text and "mprove" not in text):
        return None
    return draft


def _piped(text: str) -> Draft | None:
    """Megatron, NeMo: ``name: value`` between bars. Megatron leaves the loss out of a line whose loss is NaN."""
    pieces = text.split("|")
    evaluation = "validation" in pieces[0] or "test set" in pieces[0]
    draft = Draft("eval" if evaluation else "train")
    if m := re.search(r"iteration\s+(\d+)(?:\s*/\s*(\d+))?", pieces[0]):
        draft.step, draft.total_steps, draft.firm = int(m[1]), int(m[2]) if m[2] else None, True
    if e := re.search(r"epoch:?\s+(\d+)", pieces[0]):
        draft.epoch = float(e[1])
    for piece in pieces[1:40]:
        name, colon, value = piece.rpartition(":")
        value = value.strip()
        if colon and value:
            name = name.strip()
            if evaluation:
                name = name.removesuffix(" value").replace("lm loss PPL", "ppl")
            draft.add(name, value.split()[0])
    draft.finish()
    if draft.step is None or not draft.values:
        return None
    draft.measured = True
    return draft


SAMPLES = (
    (" iteration      100/    1000 | consumed samples:        16000 | elapsed time per iteration (ms): 173.1 | learning rate: 5.051E-05 | global batch size:    16 | lm loss: 1.2E+00 | "
     "loss scale: 65536.0 | grad norm: 1.25 | number of skipped iterations:   0 | number of nan iterations:   0 |",
     {"loss": 1.2, "step": 100, "total_steps": 1000, "lr": 5.051e-05, "grad_norm": 1.25, "loss_scale": 65536, "skipped_iterations": 0, "nan_iterations": 0, "step_time": 0.1731, "kind": "train"}),
    (" iteration      617/    6000 | consumed samples:        59232 | elapsed time per iteration (ms): 11026.3 | learning rate: 1.0E-05 | global batch size:    96 | loss scale: 1.0 | "
     "grad norm: nan | number of skipped iterations:   0 | number of nan iterations:   1 |", {"grad_norm": float("nan"), "nan_iterations": 1, "step": 617, "loss": None}),
    (" validation loss at iteration 1000 | lm loss value: 2.3E+00 | lm loss PPL: 9.97E+00 | ", {"eval_loss": 2.3, "eval_ppl": 9.97, "step": 1000, "kind": "eval"}),
    ("| epoch   1 |   200/ 2928 batches | lr 20.00 | ms/batch 18.21 | loss  7.63 | ppl  2064.48", {"loss": 7.63, "step": 200, "total_steps": 2928, "epoch": 1, "step_time": 0.01821}),
    ("[1,  2000] loss: 2.173", {"loss": 2.173, "epoch": 1, "step": 2000}),
    ("Training: 1200it [00:30, 39.7it/s, loss=0.3]", {"loss": 0.3, "step": 1200}),
    ("Test set: Average loss: 0.0489, Accuracy: 9838/10000 (98%)", {"eval_loss": 0.0489, "eval_accuracy": 0.9838, "kind": "eval"}),
    ("INFO:tensorflow:Saving dict for global step 1000: accuracy = 0.95, global_step = 1000, loss = 0.15", {"eval_loss": 0.15, "eval_accuracy": 0.95, "step": 1000}),
    ("INFO:tensorflow:loss = 2.3025851, step = 100 (2.345 sec)", {"loss": 2.3025851, "step": 100}),
    ("Epoch 1 | Step 50 | Loss: 1.234e+01 | LR: 3.0e-04 | Grad Norm: inf | 12.5k tok/s", {"loss": 12.34, "grad_norm": float("inf"), "throughput": 12500}),
    ("Training epoch 0, iteration 10/20000 | lr: 2.000e-07 | global_batch_size: 128 | global_step: 10 | reduced_train_loss: 2.4380 | train_step_timing in s: 4.101 | consumed_samples: 1280",
     {"loss": 2.438, "step": 10, "total_steps": 20000, "step_time": 4.101, "epoch": 0}),
    ("iter 10: loss 1.2345, time 850.67ms, mfu 31.26%", {"loss": 1.2345, "step": 10, "step_time": 0.85067}),
    ("iter 25: loss nan, time 116.02ms, lr 5.200e-04", {"loss": float("nan"), "step": 25, "lr": 5.2e-4}),
    ("step 500: train loss 1.2, val loss 1.3", {"loss": 1.2, "eval_loss": 1.3, "step": 500}),
    ("step:  1  loss: 12.17745  grad_norm:  1.1529  memory: 58.21GiB(73.58%)  tps: 7,596  tflops: 438.56  mfu: 44.52%",
     {"loss": 12.17745, "grad_norm": 1.1529, "memory": 58.21, "throughput": 7596, "step": 1}),
    ("completed step: 7, seconds: 4.123, TFLOP/s/device: 199.280, Tokens/s/device: 3975.925, total_weights: 524288, loss: 12.300", {"loss": 12.3, "step": 7, "step_time": 4.123, "throughput": 3975.925}),
    ("step 1/60  loss: 6.4002  grad_norm: 6.098  lr: 2.00e-05  tok/s: 153", {"loss": 6.4002, "grad_norm": 6.098, "lr": 2e-5, "throughput": 153, "step": 1, "total_steps": 60}),
    ("eval at step 30: loss=3.4516", {"eval_loss": 3.4516, "step": 30, "kind": "eval", "loss": None}),
    ("epoch 001:   1000 / 21194 loss=9.183, ppl=104.89, wps=3193, ups=1.85, num_updates=1100, lr=1.20e-05, gnorm=2.361, loss_scale=32",
     {"loss": 9.183, "epoch": 1, "step": 1100, "grad_norm": 2.361, "loss_scale": 32, "throughput": 3193}),
    ("valid | epoch 001 | valid on 'valid' subset | loss 8.040 | nll_loss 6.790 | ppl 110.66 | num_updates 1000 | best_loss 8.040", {"eval_loss": 8.04, "eval_ppl": 110.66, "step": 1000, "kind": "eval"}),
    ("Train: 3 [ 100/1251 (  8%)]  Loss: 6.9 (6.8)  Time: 0.315s,  850.03/s  (0.302s,  847.02/s)  LR: 1.000e-03  Data: 0.017 (0.013)",
     {"loss": 6.9, "lr": 1e-3, "epoch": 3, "step": 100, "total_steps": 1251, "step_time": 0.315}),
    ("Test: [  24/48]  Time: 0.201 (0.231)  Loss:   5.799 ( 5.968)  Acc@1:  11.706 ( 11.648)  Acc@5:  17.231 ( 17.909)", {"eval_loss": 5.799, "eval_acc@1": 11.706, "kind": "eval"}),
    ("Train Epoch: 0 [103424/285000 (36%)] Data (t): 0.080 Batch (t): 0.850, 1194.10/s, 304.143/s/gpu LR: 0.000025 Logit Scale: 14.486 Contrastive_loss: 5.5183 (5.8183) Loss: 5.5183 (5.8183)",
     {"loss": 5.5183, "epoch": 0, "step": 103424, "total_steps": 285000, "lr": 2.5e-5}),
    ("Epoch(train)  [1][100/980]  lr: 4.0000e-04  eta: 4:00:23  time: 0.4050  data_time: 0.0138  memory: 10782  grad_norm: 9.9753  loss: 2.1899  loss_cls: 1.2239",
     {"loss": 2.1899, "grad_norm": 9.9753, "memory": 10782, "epoch": 1, "step": 100, "total_steps": 980, "train_loss_cls": 1.2239}),
    ("Iter [50/80000]\tlr: 2.000e-06, eta: 12:58:59, time: 0.599, data_time: 0.011, memory: 17233, decode.loss_ce: 2.7433, decode.acc_seg: 22.5000, loss: 3.6892", {"loss": 3.6892, "step": 50, "total_steps": 80000}),
    ("Epoch [1][100/4000]\tlr: 1.000e-03, eta: 2:00:59, time: 0.600, memory: 8120, loss_ce: 1.3394, loss: 2.0, grad_norm: nan", {"loss": 2.0, "grad_norm": float("nan"), "step": 100, "total_steps": 4000, "epoch": 1}),
    (" eta: 0:10:01  iter: 19  total_loss: 1.25  loss_cls: 0.7  loss_box_reg: 0.5  time: 0.5  lr: 0.00005  max_mem: 2000M", {"loss": 1.25, "step": 19, "lr": 5e-5, "memory": 2000}),
    ("Epoch[1] Iteration[10/500] Loss: 55.1928 RunningLoss: 109.1237", {"loss": 55.1928, "epoch": 1, "step": 10, "total_steps": 500}),
    ("epoch: [1/500], global_step: 10, lr: 0.000010, acc: 0.025452, CTCLoss: nanxxx, loss: nanxxx, avg_reader_cost: 0.18348 s", {"loss": float("nan"), "epoch": 1, "total_epochs": 500, "step": 10, "train_acc": 0.025452}),
    ("epoch: 1, lr: 1.00e-03 - train loss: 1.2 - valid loss: 2.3, valid PER: 30.5", {"loss": 1.2, "eval_loss": 2.3, "epoch": 1, "lr": 1e-3}),
    ("Epoch [3/10], Step [10/100], Loss: 0.5", {"loss": 0.5, "epoch": 3, "total_epochs": 10, "step": 10, "total_steps": 100}),
    ("step 10 loss 0.5 lr 1e-3", {"loss": 0.5, "step": 10, "lr": 1e-3}),
    ("step=10 loss=-inf", {"loss": float("-inf"), "step": 10}),
    ("step=4, loss=1.#QNAN, lr=0.1", {"loss": float("nan"), "step": 4}),
    ("epoch 3 train_loss 0.1 val_acc 0.9", {"loss": 0.1, "eval_acc": 0.9, "epoch": 3}),
    ("[eval] step 5 val_loss 0.3", {"eval_loss": 0.3, "step": 5, "kind": "eval"}),
    ("Step... (25 / 60000 | Loss: 4.4234, Learning Rate: 5.00e-06)", {"loss": 4.4234, "step": 25, "total_steps": 60000, "lr": 5e-6}),
    ("step=10, skipped=2, lr=[1e-05], mom=[[0.9, 0.95]]", {"step": 10, "skipped_iterations": 2, "lr": 1e-5, "kind": "progress"}),
    ("epoch=0/micro_step=100/global_step=100, RunningAvgSamplesPerSec=12.5, CurrSamplesPerSec=12.6, MemAllocated=2.1GB, MaxMemAllocated=4.2GB", {"step": 100, "throughput": 12.5, "kind": "progress"}),
    ("steps: 10 loss: 2.3010 iter time (s): 1.200 samples/sec: 3.400", {"loss": 2.301, "step": 10, "throughput": 3.4}),
    ("[25] learning_rate=3.000e-07, loss=9.7000, grad_error=0.0, steps_per_sec=1.543, uptime=0", {"loss": 9.7, "lr": 3e-7, "step": 25, "throughput": 1.543}),
    ("I1201 15:45:16.433560 140006861294464 train.py:42] [  120] bce=nan, gnorm=nan, loss=nan", {"loss": float("nan"), "step": 120}),
    ("epoch 01 [ 100/525] loss 0.50422 lr 9.70e-04 time 0.223s", {"loss": 0.50422, "epoch": 1, "step": 100, "total_steps": 525, "step_time": 0.223}),
    ("step    100 | loss 9.1411 | gnorm 1.216 | lr 6.00e-05 | 33211 tok/s/gpu | mem 69.2/79.1 GiB", {"loss": 9.1411, "grad_norm": 1.216, "step": 100, "lr": 6e-5}),
    ("epoch 0 step 20 loss 0.4057 grad_norm 0.928 lr 1.00e-03 | 20639 samples/s", {"loss": 0.4057, "throughput": 20639, "step": 20, "epoch": 0}),
    ("step 18040 loss 2.0919 lr 1.21e-04 gnorm 0.81 1.92 s/it", {"loss": 2.0919, "step_time": 1.92, "grad_norm": 0.81}),
    ("epoch 0 done in 0.4s: val_loss nan val_acc 0.6359 lr 0.0009", {"eval_loss": float("nan"), "eval_acc": 0.6359, "epoch": 0}),
    ("step=0 loss=1.3005 mae=0.3600 n_errors=0 n_nan=0 it/s=1.64 util=97%", {"loss": 1.3005, "throughput": 1.64, "step": 0}),
    ("ep 21 train, step 8, ctc 4.400, aed_ce 5.405, num_seqs 10, max_size:time 231435, mem_usage:cuda:0 8.8GB, 0.778 sec/step", {"train_ctc": 4.4, "train_aed_ce": 5.405, "step_time": 0.778, "step": 8, "epoch": 21}),
    ("  350 | train_loss 3.650 | val_loss 3.750 | 1.20s/it", {"loss": 3.65, "eval_loss": 3.75, "step": 350}),
    ("forest/held-out: auc=0.4126 accuracy=0.3327", {"eval_auc": 0.4126, "eval_accuracy": 0.3327, "kind": "eval", "step": None}),
    ("forest/train: auc=1.0000 accuracy=1.0000", {"train_auc": 1.0, "kind": "train"}),
    ("validation: f1 0.71 precision 0.80", {"eval_f1": 0.71, "kind": "eval"}),
    ("best: accuracy=0.93", None),
    # settings and prose
    ("learning_rate=3e-05", None),
    ("Namespace(epochs=10, loss_weight=1.0, lr=0.001, step=5, loss=1)", None),
    ("label_smoothing=0.1 weight_decay=0.01 loss_scale=0 max_grad_norm=1.0", None),
    ("gradient overflow, skipping step, loss scale 65536 -> 32768", None),
    ("Metric val_loss improved by 0.252 >= min_delta = 0.01. New best score: 0.241", None),
    ("Saved checkpoint ckpt/checkpoint1.pt (epoch 1 @ 1000 updates, score 8.040) (writing took 2.1 seconds)", None),
    ("val_loss did not improve from 0.3648", None),
    ("Early stopping at epoch 12, best val_loss 0.36", None),
    ("  File \"/x/keras/src/losses/loss.py\", line 67, in __call__", None),
)  # fmt: skip
