"""Tables whose rows mean nothing without their header: stable-baselines3, Ultralytics, spaCy, CSV, Composer."""

from __future__ import annotations

import re

from check_failed_run.scanning.metrics.values import NUMBER, Draft, canonical, parse_number

_SB3_HEAD = re.compile(r"\|\s++(\w[\w ]{0,20})/\s++\|\s++\|$")
_SB3_ROW = re.compile(rf"\|\s++(\w[\w/ ]{{0,40}}?)\s*\|\s++({NUMBER})\s++\|$")
_SB3_END = re.compile(r"-{8,}$")

_YOLO_HEAD = re.compile(r"\s*Epoch\s+(?:GPU_mem|gpu_mem)\s+(.{1,300})$")
_YOLO_ROW = re.compile(r"\s*(\d+)/(\d+)\s+(\d[\d.]*)[GM]?B?\s+((?:\S+\s+){1,14}?)\s*\d+:\s")
_YOLO_VAL_HEAD = re.compile(r"\s*Class\s+Images\s+(?:Instances|Labels)\s+(.{1,300}?)(?::.*)?$")
_YOLO_ALL = re.compile(rf"\s*all\s+\d+\s+\d+((?:\s+{NUMBER}){{2,12}})\s*$")

_SPACY_HEAD = re.compile(r"\s*E\s{2,}#\s{2,}(.{1,300})$")
_COLUMNS = re.compile(r"\s{2,}")
_ROW_OF_NUMBERS = re.compile(rf"\s*\d+(?:\s+{NUMBER}){{2,20}}\s*$")

_CSV_HEAD = re.compile(r"[A-Za-z_][\w/ .@()-]{0,60}(?:[,\t][\w/ .@()-]{1,60}){1,40}$")

_COMPOSER_BATCH = re.compile(r"\s*\[(?:epoch=(\d+)(?:/(\d+))?)?(?:\]\[|,\s?)?(?:batch=(\d+)(?:/(\d+))?)?\]:\s*$")
_COMPOSER_ROW = re.compile(rf"\s{{0,16}}(Train|Eval) ([\w/.@-]{{1,80}}): ({NUMBER})$")


class Tables:
    """Readers that keep a header."""

    def __init__(self) -> None:
        self.sb3: list[tuple[str, str]] = []
        self.sb3_group = ""
        self.yolo: list[str] = []
        self.yolo_val: list[str] = []
        self.yolo_epoch: float | None = None
        self.spacy: list[str] = []
        self.csv: list[str] = []
        self.composer: tuple[float | None, int | None, int | None] = (None, None, None)

    def read(self, text: str) -> Draft | None:
        first = text[:1]
        if first == "|":
            return self._sb3_row(text)
        if first == "-" and self.sb3 and _SB3_END.match(text):
            return self._sb3_end()
        if self.spacy and _ROW_OF_NUMBERS.match(text):
            return self._spacy_row(text)
        if self.csv and (first.isdigit() or first in ",-.") and "," in text:
            return self._csv_row(text)
        return None

    # stable-baselines3

    def _sb3_row(self, text: str) -> Draft | None:
        if m := _SB3_HEAD.match(text):
            self.sb3_group = m[1].strip()
            self.sb3 = self.sb3 or [("", "")]
        elif (m := _SB3_ROW.match(text)) and len(self.sb3) < 64:
            if self.sb3:
                self.sb3.append((f"{self.sb3_group}/{m[1].strip()}", m[2]))
            elif m[1].strip() == "loss":
                draft = Draft()  # a row seen alone
                draft.add("loss", m[2])
                return draft
        return None

    def _sb3_end(self) -> Draft | None:
        rows, self.sb3 = self.sb3[1:], []
        if not rows:
            return None
        draft = Draft()
        for name, value in rows:
            group, _, key = name.partition("/")
            if group == "time" and key == "iterations":
                continue
            draft.add(f"eval_{key}" if group == "eval" else key, value)
        draft.finish()
        return draft

    # Ultralytics

    def yolo_header(self, text: str) -> bool:
        if m := _YOLO_HEAD.match(text):
            self.yolo = m[1].split()
            return True
        if m := _YOLO_VAL_HEAD.match(text):
            names = re.sub(r"\((\w+)\s+", r"(\1 ", m[1].split("%|")[0].rstrip("0123456789 ")).replace("(", " ").replace(")", " ").split()
            group = ""
            self.yolo_val = []
            for name in names:
                if name in ("Box", "Mask", "Pose"):
                    group = "" if name == "Box" else name.lower() + "_"
                else:
                    self.yolo_val.append(group + {"P": "precision", "R": "recall"}.get(name, name.lower()))
            return True
        return False

    def yolo_row(self, text: str) -> Draft | None:
        if m := _YOLO_ROW.match(text):
            cells = m[4].split()
            names = self.yolo if len(self.yolo) >= 2 else [f"part{i}_loss" for i in range(len(cells) - 1)] + ["Instances"]
            draft = Draft()
            total = 0.0
            for name, cell in zip(names, cells, strict=False):
                if name in ("Instances", "Size", "labels", "img_size"):
                    break
                try:
                    value = parse_number(cell)
                except ValueError:
                    return None
                draft.values["train_" + name.lower()] = value
                total += value
            if not draft.values:
                return None
            draft.values = {"loss": total, **draft.values, "memory": parse_number(m[3])}
            draft.epoch, draft.total_epochs = float(m[1]), float(m[2])
            draft.measured = True
            self.yolo_epoch = draft.epoch
            return draft
        if m := _YOLO_ALL.match(text):
            numbers = m[1].split()
            names = self.yolo_val if len(self.yolo_val) == len(numbers) else ["precision", "recall", "map50", "map50_95"]
            draft = Draft("eval")
            for name, cell in zip(names, numbers, strict=False):
                draft.values["eval_" + name.replace("-", "_")] = parse_number(cell)
            draft.epoch = self.yolo_epoch
            draft.measured = True
            return draft
        return None

    # spaCy

    def spacy_header(self, text: str) -> bool:
        m = _SPACY_HEAD.match(text)
        if not m:
            return False
        self.spacy = _COLUMNS.split(m[1].strip())
        return True

    def _spacy_row(self, text: str) -> Draft | None:
        cells = text.split()
        if len(cells) != len(self.spacy) + 2:
            return None
        draft = Draft()
        losses = []
        for name, cell in zip(self.spacy, cells[2:], strict=True):
            value = parse_number(cell)
            if name.upper().startswith("LOSS"):
                losses.append(value)
                draft.values["train_" + name.lower().replace(" ", "_")] = value
            else:
                draft.values["eval_" + name.lower()] = value
        if losses:
            draft.values = {"loss": sum(losses), **draft.values}
        draft.epoch, draft.step, draft.measured = float(cells[0]), int(cells[1]), True
        return draft

    # CSV

    def csv_header(self, text: str) -> bool:
        if not _CSV_HEAD.match(text):
            return False
        names = [n.strip() for n in re.split(r"[,\t]", text)]
        roles = [canonical(n, "train") for n in names]
        if any(r[2] for r in roles) and any(r[0] in ("step", "firm-step", "epoch") for r in roles):
            self.csv = names
            return True
        return False

    def _csv_row(self, text: str) -> Draft | None:
        cells = [c.strip() for c in text.split(",")]
        if len(cells) != len(self.csv):
            self.csv = []
            return None
        draft = Draft()
        for name, cell in zip(self.csv, cells, strict=True):
            if cell:
                draft.add(name, cell)
        draft.finish()
        return draft if draft.measured else None

    # Composer

    def composer_line(self, text: str) -> Draft | None:
        if m := _COMPOSER_BATCH.match(text):
            if m[1] or m[3]:
                self.composer = (float(m[1]) if m[1] else None, int(m[3]) if m[3] else None, int(m[4]) if m[4] else None)
            return None
        m = _COMPOSER_ROW.match(text)
        if not m or m[2].startswith(("time/", "trainer/", "memory/")):
            return None
        draft = Draft("eval" if m[1] == "Eval" else "train")
        draft.add(m[2], m[3])
        draft.finish()
        if not draft.values:
            return None
        draft.epoch, draft.step, draft.total_steps = self.composer
        return draft


SAMPLES = (
    (("------------------------------", "| rollout/         |           |", "|    ep_rew_mean   | -203      |", "| time/            |           |", "|    fps           | 1210      |",
      "|    total_timesteps | 4096    |", "| train/           |           |", "|    loss          | 12.5      |", "|    approx_kl     | nan       |", "------------------------------"),
     {"loss": 12.5, "train_ep_rew_mean": -203, "throughput": 1210, "step": 4096, "train_approx_kl": float("nan")}),
    ("|    loss                 | nan         |", {"loss": float("nan")}),
    (("      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size", "      3/100      2.13G      1.250      nan     1.125        12        640: 100%|██████████| 10/10 [00:03<00:00]"),
     {"loss": float("nan"), "train_box_loss": 1.25, "train_cls_loss": float("nan"), "epoch": 3, "total_epochs": 100, "memory": 2.13}),
    (("                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100%|██████████| 4/4", "                   all        240       1822      0.459      0.429      0.381      0.213"),
     {"eval_precision": 0.459, "eval_recall": 0.429, "eval_map50": 0.381, "eval_map50_95": 0.213, "kind": "eval"}),
    (("E    #       LOSS TOK2VEC  LOSS NER  ENTS_F  SCORE ", "---  ------  ------------  --------  ------  ------", "  1     200         12.50     30.50   81.20    0.81"),
     {"loss": 43.0, "eval_ents_f": 81.2, "eval_score": 0.81, "epoch": 1, "step": 200}),
    (("step,loss,lr", "10,0.5,1e-3"), {"loss": 0.5, "lr": 1e-3, "step": 10}),
    (("epoch,lr,train_mse,val_mse", "3,0.002,3.27843,3.92697"), {"train_mse": 3.27843, "eval_mse": 3.92697, "lr": 0.002, "epoch": 3}),
    (("name,age,city", "3,4,5"), None),
    (("[batch=41/100]:", "\t Train loss/train/total: 2.2198"), {"loss": 2.2198, "step": 41, "total_steps": 100}),
    (("[epoch=1][batch=10/100]:", "\t Train loss/train/total: nan"), {"loss": float("nan"), "step": 10, "total_steps": 100, "epoch": 1}),
    (("[epoch=2]:", "\t Eval metrics/eval/MulticlassAccuracy: 0.5"), {"eval_multiclassaccuracy": 0.5, "epoch": 2}),
)  # fmt: skip
