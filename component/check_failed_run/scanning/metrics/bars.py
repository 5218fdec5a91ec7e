"""Progress bars: tqdm (plain, Lightning, accelerate, kohya), rich-free Keras 2 and 3."""

from __future__ import annotations

import re
from functools import lru_cache

from check_failed_run.scanning.metrics.values import NUMBER, Draft, parse_number

_TQDM = re.compile(r"\|[^|]{0,400}+\| *(?P<n>\d[\d.,]*+[kMGT]?)/(?P<total>\d[\d.,]*+[kMGT]?|\?)(?: ?[A-Za-z]{1,12})? *\[(?P<rest>.{0,2000})$")
_RATE = re.compile(r"(?<![\d.])(?:(?P<a>\d[\d.]*+[kMG]?) ?(?P<unit>[A-Za-z]{1,20})/s\b|(?P<b>\d[\d.]*+) ?s/(?P<per>[A-Za-z]{1,20}))")
_POSTFIX = re.compile(rf"([A-Za-z_][\w/.@ +-]{{0,60}}?)\s?[=:]\s?({NUMBER})(?=[%a-zA-Z]{{0,3}}[\],; ]|$)")
_EPOCH = re.compile(r"(?i)\bepochs?\b\W{0,3}(\d+)(?:\s?/\s?(\d+))?")
_EVAL = re.compile(r"(?i)\b(?:val\w{0,8}|eval\w{0,6}|test\w{0,3}|dev|predict\w{0,4}|sanity check\w{0,3})\b")
# bars of work that is no training: datasets, tokenizers, hubs, model files
_OTHER = re.compile(
    r"(?i)download|upload|loading|writing|map\b|map \(|tokeniz|filter|generating|saving|resolv|fetch|extract|preprocess|caching|cach|index|shard|packing|convert|flatten|"
    r"creating|collect|\.(?:bin|safetensors|json|parquet|model|txt|arrow|tar|zip)\b|compil|decod|reading|scan|build|pars|comput|check(?!ing sanity)|grouping|running tokenizer|"
    r"num_proc|class\s+images|adding|casting|dropping|processing|MB|encod|import|pull"
)
_DESC_LOSS = re.compile(rf"[Ll]oss[:=]? ?({NUMBER})(?=[:;,\s\]]|$)")
_TORCHTUNE = re.compile(r"(\d+)\|(\d+)\|Loss: ")  # epoch, global step

# rich.progress as Lightning sets it up: "Epoch 0/3  ━━━━━━ 60/60 0:00:00 • 0:00:00 234.42it/s train_loss: 0.486"
_RICH = re.compile(r"(?P<desc>.{0,60}?)[ ━╸╺]{3,200}(?P<n>\d{1,9})/(?P<total>\d{1,9}|--|\?) +\d+:\d\d:\d\d • (?:\d+:\d\d:\d\d|-:--:--) +(?P<rate>\d[\d.]*)it/s ?(?P<rest>.{0,600})$")
_RICH_ITEM = re.compile(rf"([A-Za-z_][\w/.@-]{{0,60}}+): ({NUMBER})(?=\s|$)")

_KERAS = re.compile(r"\s{0,9}(\d+)/(\d+|Unknown)\s+(?:\[[=>. ]{0,60}\]|[━─╸╺\s]{1,80})?\s*(?:- )?(.*)$", re.S)
_KERAS_ITEM = re.compile(rf"- ([A-Za-z][\w@./ -]{{0,60}}?): ({NUMBER})(?=\s|$)")
_KERAS_TIME = re.compile(r"(?<![\d.])(\d++(?:\.\d++)?)(ms|s|us|µs)/(?:step|epoch|sample)")
_KERAS_EPOCH = re.compile(r"Epoch (\d+)/(\d+)\s*$")


@lru_cache(maxsize=1024)
def _desc(desc: str) -> tuple[bool, bool]:
    """Whether a bar with this description is no training, and whether it is evaluation."""
    if not desc:
        return False, False
    return "loss" not in desc.lower() and bool(_OTHER.search(desc)), bool(_EVAL.search(desc))


class Bars:
    """tqdm bars. Remembers the longest bare bar, which is training; shorter ones within it are evaluation."""

    def __init__(self) -> None:
        self.main = 0
        self.tail = ""  # what was printed right behind the last bar, where it speaks of a loss

    def read(self, text: str) -> Draft | None:
        bar = text.rfind("%|")
        m = _TQDM.match(text, bar + 1 if bar >= 0 else text.find("|"))
        if not m:
            return None
        desc = text[: bar if bar >= 0 else m.start()].rstrip("0123456789% ").strip()
        if "]" in desc and "%|" in desc:
            desc = desc[desc.rindex("]") + 1 :]  # an earlier state of the bar stands before it
        other, evaluation = _desc(desc)
        if other:
            return None
        draft = Draft("eval" if evaluation else "train")
        if "oss" in desc and (e := _DESC_LOSS.search(desc)):
            draft.add("loss", e[1])
            if t := _TORCHTUNE.match(desc):
                draft.epoch, draft.step, draft.firm = float(t[1]), int(t[2]), True
        rest = m["rest"]
        end = rest.rfind("]")
        inner, after = (rest[:end], rest[end + 1 :]) if end >= 0 else (rest, "")
        self.tail = after if "oss" in after else ""
        if after[:1] not in (",", ":"):
            after = ""
        if "=" in inner or after:
            for name, value in _POSTFIX.findall(inner.partition(",")[2] + "]" + after):
                draft.add(name, value)
        if r := _RATE.search(inner):
            if r["a"]:
                if r["unit"] in ("B", "MB", "kB", "GB", "iB", "MiB", "examples", "files", "file", "ex"):
                    return None if r["unit"] not in ("examples", "ex") or not draft.measured else draft
                draft.values.setdefault("throughput", parse_number(r["a"]))
            else:
                draft.values.setdefault("step_time", parse_number(r["b"]))
        n = int(parse_number(m["n"]))
        total = int(parse_number(m["total"])) if m["total"] != "?" else None
        if desc and (e := _EPOCH.search(desc)):
            draft.epoch = float(e[1])
            if e[2]:
                draft.total_epochs = float(e[2])
        draft.finish()
        if draft.phase == "eval" or (not desc and not draft.measured and total is not None and total < self.main):
            draft.phase = "eval"
            if not draft.measured:
                return None
            return draft
        if not desc and total:
            self.main = max(self.main, total)
        if not draft.firm:
            draft.step, draft.total_steps = n, total
        return draft


def read_rich(text: str) -> Draft | None:
    """A bar of rich.progress."""
    m = _RICH.match(text)
    if not m:
        return None
    other, evaluation = _desc(m["desc"].strip())
    if other:
        return None
    draft = Draft("eval" if evaluation else "train")
    for name, value in _RICH_ITEM.findall(m["rest"]):
        draft.add(name, value)
    draft.values["throughput"] = float(m["rate"])
    draft.finish()
    if evaluation:
        return draft if draft.measured else None
    draft.step = int(m["n"])
    if m["total"].isdigit():
        draft.total_steps = int(m["total"])
    if e := _EPOCH.search(m["desc"]):
        draft.epoch = float(e[1])
        if e[2]:
            draft.total_epochs = float(e[2])
    return draft


class Keras:
    """``312/312 ━━━ 3s 9ms/step - loss: 0.1`` below a banner ``Epoch 3/10``."""

    def __init__(self) -> None:
        self.epoch: float | None = None
        self.total: float | None = None

    def banner(self, text: str) -> bool:
        m = _KERAS_EPOCH.match(text)
        if not m:
            return False
        self.epoch, self.total = float(m[1]), float(m[2])
        return True

    def read(self, text: str) -> Draft | None:
        m = _KERAS.match(text)
        if not m:
            return None
        rest = m[3]
        time = _KERAS_TIME.search(rest)
        if not time and "ETA" not in rest and " - " not in rest:
            return None
        items = _KERAS_ITEM.findall("- " + rest)
        if not items and not time:
            return None
        draft = Draft()
        for name, value in items:
            if name not in ("ETA", "loss_scale"):
                draft.add(name, value)
        if time:
            draft.values.setdefault("step_time", float(time[1]) / {"ms": 1e3, "s": 1, "us": 1e6, "µs": 1e6}[time[2]])
        draft.step = int(m[1])
        if m[2] != "Unknown":
            draft.total_steps = int(m[2])
        draft.epoch, draft.total_epochs = self.epoch, self.total
        draft.finish()
        return draft


SAMPLES = (
    ("Epoch 3:  62%|██████▏   | 1744/2812 [08:33<05:14,  3.40it/s, v_num=0, train_loss=0.12, val_acc=0.4]",
     {"loss": 0.12, "eval_acc": 0.4, "step": 1744, "total_steps": 2812, "epoch": 3, "throughput": 3.4, "kind": "train"}),
    ("Epoch 0:   0%|          | 0/988 [00:00<?, ?it/s, loss=nan, v_num=4]", {"loss": float("nan"), "step": 0}),
    ("Epoch 0: |          | 12/? [00:01<00:00, 8.1it/s, v_num=2, train_loss=inf]", {"loss": float("inf"), "step": 12}),
    ("steps:  98%|█████████▊| 3630/3720 [1:19:15<01:57,  1.31s/it, avr_loss=nan]", {"loss": float("nan"), "step": 3630, "step_time": 1.31}),
    ("  16%|█▋        | 122/750 [04:41<24:10,  2.31s/it]", {"step": 122, "total_steps": 750, "step_time": 2.31, "kind": "progress"}),
    ("Epoch 1/3:  16%|█▌        | 5/32 [00:00<00:01, 26.07batch/s, acc=0.613, loss=1.0213]", {"loss": 1.0213, "train_acc": 0.613, "epoch": 1, "total_epochs": 3, "throughput": 26.07}),
    ("1|12|Loss: 2.5675:   5%|█                   | 12/226 [01:49<32:27,  9.10s/it]", {"loss": 2.5675, "step": 12, "epoch": 1, "step_time": 9.1}),
    ("epoch 0: 28%|██▊ | 14/50 [00:00<00:00, 41.19it/s, loss=1.7]epoch 0: 42%|████▏ | 21/50 [00:00<00:00, 50.95it/s, loss=1.6]", {"loss": 1.6, "step": 21}),
    ("Map (num_proc=4):  16%|█▋        | 122/750 [04:41<24:10, 2.31 examples/s]", None),
    ("Epoch 1/3  ━━━━━━━━━━━━━━━━ 60/60 0:00:00 • 0:00:00 234.42it/s train_loss: nan.0 val_acc: 0.5", {"loss": float("nan"), "eval_acc": 0.5, "step": 60, "epoch": 1, "total_epochs": 3}),
    ("Epoch 2:  25%|██▌       | 10/40 [00:00<00:00, 37.81it/s, v_num=0, train_loss=nan.0, val_loss=inf.0]", {"loss": float("nan"), "eval_loss": float("inf")}),
    ("model.safetensors:  16%|█▋        | 122M/750M [04:41<24:10, 2.31MB/s]", None),
    (("Epoch 3/10", "312/312 ━━━━━━━━━━━━━━━━━━━━ 3s 9ms/step - accuracy: 0.91 - loss: 0.25 - val_accuracy: 0.5 - val_loss: nan"),
     {"loss": 0.25, "train_accuracy": 0.91, "eval_accuracy": 0.5, "eval_loss": float("nan"), "epoch": 3, "total_epochs": 10, "step": 312, "step_time": 0.009}),
    ("149/149 [==============================] - 13s 82ms/step - loss: 1.0423 - val_loss: 1.0934 - lr: 1.0000e-04", {"loss": 1.0423, "eval_loss": 1.0934, "lr": 1e-4}),
    ("64/64 - 4s - 56ms/step - accuracy: 0.1040 - loss: nan", {"loss": float("nan"), "step_time": 0.056}),
    ("     11/Unknown 3s 12ms/step - accuracy: 0.3239 - loss: 2.1299", {"loss": 2.1299, "step": 11, "total_steps": None}),
    ("   1/2104 [..............................] - ETA: 2:38:13 - d_loss: 0.6900 - g_loss: 0.9600", {"train_d_loss": 0.69, "train_g_loss": 0.96, "step": 1}),
)  # fmt: skip
