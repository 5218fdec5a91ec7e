"""Metric lines to :class:`MetricPoint`: one module a shape of line, each with its samples.

``mappings`` dicts, JSON, pretty tables; ``bars`` tqdm and Keras; ``boosting`` XGBoost, LightGBM, CatBoost;
``tables`` rows below a header; ``pairs`` names and numbers in running text.
"""

from __future__ import annotations

import re

from check_failed_run.scanning.facts import LogLine, MetricPoint
from check_failed_run.scanning.metrics import bars, boosting, mappings, pairs, tables
from check_failed_run.scanning.metrics.values import MAX_VALUES, Draft, parse_number

__all__ = ["PREFILTER", "MetricReader", "parse_number"]

# All alternatives begin with one literal byte, which lets the search skip as fast as memchr does. A superset of
# nothing and a sample of everything: tables without names in their rows are read from small logs only.
PREFILTER: re.Pattern[bytes] = re.compile(
    rb"s(?:s[^a-z](?<=oss.)|/it[,\]]|/step|[,\]](?<=/s.)|[ =:](?<=it/s.)|teps?[\"']?[ =:\[]{1,4}\d"
    rb"| (?<='s )[a-z_0-9@]{1,30}: [-\dn]|e:[-\dn]|t-[a-z@]{2,20}:[-\dn]|t: -?[\dn]|amples/s)"
)

_READERS = {"mappings": mappings.SAMPLES, "bars": bars.SAMPLES, "boosting": boosting.SAMPLES, "tables": tables.SAMPLES, "pairs": pairs.SAMPLES}

_MEASURED = (
    "acc", "/s", "s/", "norm", "auc", "mse", "reward", "ppl", "perplex", "err", "bleu", "wer", "f1", "score", "dice", "iou", "nll", "map", "mae", "rouge", "iteration", "kl",
)  # fmt: skip


# Loops that speak their author's language. Only whole words with a number behind them are put into English.
_LANGUAGES = {
    "step": ["шаг", "шага", "итерация", "步", "步数", "步骤", "迭代", "ステップ", "스텝", "étape", "itération", "schritt", "paso", "passo", "iteración"],
    "epoch": ["эпоха", "эпохи", "轮", "轮次", "周期", "エポック", "에폭", "에포크", "époque", "époques", "epoche", "época", "épocas", "epoka"],
    "loss": ["потери", "потеря", "лосс", "损失", "損失", "損失値", "손실", "verlust", "perte", "pérdida", "perda", "strata"],
    "lr": ["скорость обуч.", "скорость обучения", "学习率", "学習率", "학습률", "lernrate", "taux d'apprentissage", "tasa de aprendizaje", "taxa de aprendizado"],
    "grad_norm": ["норма град.", "норма градиента", "梯度范数", "勾配ノルム", "norme du gradient", "gradientennorm"],
    "acc": ["точность", "准确率", "精度", "正解率", "정확도", "genauigkeit", "précision", "exactitud"],
    "tokens/s": ["ток/с", "токенов/с", "词/秒", "トークン/秒"],
    "samples/s": ["примеров/с", "обр/с", "样本/秒", "サンプル/秒"],
    "val": ["валидация", "вал.", "验证", "検証", "검증", "validierung"],
}
_ENGLISH = {word: name for name, words in _LANGUAGES.items() for word in words}
_WORD = re.compile(r"(?<![^\W_])(?:" + "|".join(re.escape(w) for w in sorted(_ENGLISH, key=len, reverse=True)) + r")(?=[\s:=：\d]{1,8}[-+\dni]|[\s_:=-]{1,2}\w)", re.I)


def _in_english(text: str) -> str:
    return _WORD.sub(lambda m: f" {_ENGLISH[m[0].lower()]} ", text).replace("：", ":").strip()


class MetricReader:
    """Reads lines of one log in order. Its only memory is the current table header or epoch banner."""

    def __init__(self) -> None:
        self._bars = bars.Bars()
        self._keras = bars.Keras()
        self._tables = tables.Tables()
        self._pretty = mappings.PrettyTable()

    def feed(self, line: LogLine) -> MetricPoint | None:
        """The metrics of one cleaned line, or None."""
        text = line.text
        if not text or len(text) > 8000:
            return None
        try:
            found = self._read(text)
        except (ValueError, OverflowError):  # a number too long for a step
            return None
        if found is None:
            return None
        reader, draft = found
        if not draft.values and draft.step is None:
            return None
        return MetricPoint(
            line=line.line,
            offset=line.offset,
            reader=reader,
            kind=draft.kind,
            step=draft.step,
            epoch=draft.epoch,
            total_steps=draft.total_steps,
            total_epochs=draft.total_epochs,
            values=tuple(draft.values.items())[:MAX_VALUES],
            rank=line.rank,
            time=line.time,
        )

    def _read(self, text: str) -> tuple[str, Draft] | None:
        if not text.isascii() and "|" not in text and "━" not in text and _WORD.search(text):
            text = _in_english(text)
        first = text[0]
        tables_ = self._tables
        if first in "|-" and (draft := tables_.read(text)):
            return "tables", draft
        # the gate: most lines of a log end here
        low = text.lower()
        if "loss" not in low and not (
            # something measured at a step or epoch
            (("step" in low or "epoch" in low or "iter" in low or "eval" in low or "test" in low or "valid" in low or "train" in low or "holdout" in low) and any(map(low.__contains__, _MEASURED)))
            # a shape that needs no name
            or "%|" in text
            or "persec" in low
            or "skipped=" in text
            or "'s " in text
            or "learn: " in text
            or (first in " 0123456789" and ("/step" in text or " all " in text or tables_.spacy or tables_.csv or tables_.yolo or " = " in text))
            or (first in "[ *E\t" and ("atch=" in text or "epoch=" in text or text.startswith("Epoch ") or " Epoch " in text or "Class" in text or "****" in text or ("-" in text and ":" in text and first == "[")))
            or ((first == "\t" or text.startswith("Eval ")) and "Eval " in text)
            or "| [" in text
            or " • " in text
            or "erlust" in text
            or "perte " in text
            or (("auc" in low or "accuracy" in low or "f1" in low) and pairs.SPLIT.search(text, 0, 120))
        ):
            return None
        has_loss = "loss" in low
        if not has_loss and text.isascii() and ("erlust" in text or "perte " in text):
            text = _in_english(text)
            first = text[0]
        if " • " in text and (draft := bars.read_rich(text)):
            return "bars", draft
        if "{" in text and ("{'" in text or '{"' in text):
            draft = mappings.read_mapping(text)
            return ("mappings", draft) if draft else None
        if "|" in text and ("it/s" in text or "%|" in text or "| [" in text or "/s" in text or "s/" in text) and "[" in text:
            if ":" in text and text.lstrip()[:1].isdigit() and (draft := tables_.yolo_row(text)):
                return "tables", draft
            if draft := self._bars.read(text):
                if self._bars.tail and not draft.measured and (behind := pairs.read_pairs(self._bars.tail)):
                    return "pairs", behind
                return "bars", draft
            if "%|" in text:
                tables_.yolo_header(text)
                return None
        if first == "[" or first.isdigit():
            if draft := boosting.read_boosting(text):
                return "boosting", draft
            if tables_.csv and (draft := tables_.read(text)):
                return "tables", draft
        if first in " \t0123456789":
            if ("/step" in text or " - " in text) and (draft := self._keras.read(text)):
                return "bars", draft
            if tables_.spacy and (draft := tables_.read(text)):
                return "tables", draft
            if draft := tables_.yolo_row(text):
                return "tables", draft
            if " = " in text:
                if draft := self._pretty.read(text):
                    return "mappings", draft
                return None if re.match(r"\s+[\w.@/-]+\s+= ", text) else self._pairs(text)
            if first != " " or text[:6].isspace():
                tables_.yolo_header(text)
        if first in "E " and (tables_.spacy_header(text) if "LOSS" in text else self._keras.banner(text)):
            return None
        if first == "*":
            self._pretty.read(text)
        composer = (first == "[" and text.endswith("]:")) or (("Train " in text or "Eval " in text) and "/" in text)
        if composer and (draft := tables_.composer_line(text)):
            return "tables", draft
        if "," in text and "=" not in text and ":" not in text and first.isalpha() and tables_.csv_header(text):
            return None
        return self._pairs(text)

    @staticmethod
    def _pairs(text: str) -> tuple[str, Draft] | None:
        if '  File "' in text:
            return None
        draft = pairs.read_pairs(text)
        return ("pairs", draft) if draft else None
