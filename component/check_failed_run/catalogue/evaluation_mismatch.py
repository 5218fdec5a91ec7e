"""Evaluation that contradicts training: below chance, collapsed, or too good too soon. Mostly a trend; a few programs say it in words."""

from __future__ import annotations

from check_failed_run.catalogue.model import Change, Fix, Reject, Role, Signature

CLS = "evaluation-mismatch"

EVAL_ON_TRAIN = Fix(
    action="Evaluate a slice of the training data with the evaluation code (and the evaluation data with the training code)",
    change=Change.DIAGNOSE,
    impact="tells a fault of the evaluation path from a fault of the data or the model; no retraining",
    validate="a score near the training score clears the path; a collapsed one proves that the path is at fault",
    time_to_try="15 min",
    gain=0.5,
    confidence=0.9,
)
ONE_LABEL_MAP = Fix(
    action=(
        "Build the label map once (from training), save it with the model, and use it for every split; compare id to label of both sides"
    ),
    change=Change.CODE,
    impact="predictions and references mean the same; mostly no retraining is needed",
    validate="re-evaluating the saved checkpoint gives a score in line with the training loss",
    time_to_try="30 min",
    gain=0.95,
    confidence=0.7,
)
SAME_PREPROCESSING = Fix(
    action=(
        "Use one preprocessing for both paths (normalisation, resize, tokenizer, encoders fitted once on training data), and "
        "compare statistics of one batch each"
    ),
    change=Change.CODE,
    impact="the model sees at evaluation what it was trained on",
    validate="mean, spread and range of both batches agree, and the re-evaluated score rises",
    time_to_try="30 min",
    gain=0.9,
    confidence=0.6,
)
REMOVE_LEAK = Fix(
    action=(
        "Find what leaks: samples in both splits, features derived from the label or written after the event; remove them and "
        "split by group and time"
    ),
    change=Change.DATA,
    impact="the score falls to what the model can really do",
    validate="no sample or group is in both splits, no single feature scores near 1, and the first evaluation is plausible",
    time_to_try="1 h",
    gain=0.9,
    confidence=0.7,
)
DEDUPLICATE = Fix(
    action="Remove the samples that both splits share (by normalised content hash), or split again by source",
    change=Change.DATA,
    impact="evaluation measures generalisation again",
    validate="the overlap is 0, and the score after 200 steps is plausible",
    time_to_try="30 min",
    gain=0.95,
    confidence=0.85,
)
EVAL_MODE = Fix(
    action=(
        "Call model.eval() (training=False) for evaluation, and check the batch-norm statistics: lower the momentum, freeze, or "
        "re-estimate them over the training data"
    ),
    change=Change.CODE,
    impact="dropout and batch norm act as they should at evaluation",
    validate="the training set scores about the same in both modes",
    time_to_try="20 min",
    gain=0.9,
    confidence=0.7,
)

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="evaluation-mismatch/overlap",
        cls=CLS,
        role=Role.CAUSE,
        kind="evaluation samples in the training data",
        ignore_case=True,
        cues=(
            "also in train",
            "overlap with the train",
            "overlap between train",
            "training examples also in",
            "in both train",
            "leak detected",
            "leakage detected",
            "shared between train",
            "appear in both",
            "train/val overlap",
            "train/test overlap",
            "present in train",
            "found in train",
            "seen in train", "present in the train", "found in the train", "seen in the train", "training example also in the evaluation", "training example also in evaluation", "training example also in the eval",
        ),
        pattern=(
            r"\b(?P<count>[1-9][\d,]{0,12})(?: [a-z]{1,20}){0,5} also in (?:the )?train|\b(?P<count5>[1-9][\d,]{0,12}) (?:of \d[\d,]{0,12} )?(?:[a-z]{1,20} ){0,4}(?:present|found|seen) in (?:the )?train|\b(?P<count2>[1-9][\d,]{0,12}) training examples? also "
            r"in (?:the )?(?:evaluation|eval|dev)"
            r"|\b(?P<count3>[1-9][\d,]{0,12}) .{0,40}?(?:overlap (?:with the train|between train)|in both (?:the )?train|shared between "
            r"(?:the )?train|appear in both)"
            r"|(?:overlap (?:with the train\w{0,10}|between train\w{0,10} and \w{1,20})|train/(?:val|test) "
            r"overlap)[^\d\n]{0,30}(?P<count4>[1-9][\d,]{0,12})|\b(?:data |target )?(?:leak|leakage) detected\b"
        ),
        unless=r"(?i)\bno (?:data |target )?leak|\b0 leak|checking|memory leak|resource leak",
        prints="spaCy debug data ('80 training examples also in evaluation data'), corpus and split checks",
        means="Samples of the evaluation set are also in the training set, so its score says nothing about new data.",
        not_shown="How much of the score comes from them, where the count is small.",
        matches=(
            "/data/dev.spacy: 60 documents, 60 of them also in train",
            "! 120 training examples also in evaluation data",
            "WARNING: 3,402 images appear in both splits",
            "18,221 of 18,240 validation ids are present in training ids",
            "train/val overlap: 812 hashes",
            "ValueError: target leakage detected in feature 'closed_at'",
        ),
        rejects=(
            Reject("dev.spacy: 60 documents, 0 of them also in train", "none"),
            Reject("No data leakage detected", "a check that passed"),
            Reject("resource_tracker: There appear to be 4 leaked semaphore objects to clean up at shutdown", "resources"),
        ),
        fixes=(DEDUPLICATE, REMOVE_LEAK),
        specificity=3,
        status="degraded",
        references=("https://spacy.io/api/cli#debug-data",),
    ),
    Signature(
        id="evaluation-mismatch/label-map-per-split",
        cls=CLS,
        role=Role.CONTEXT,
        kind="labels encoded per split",
        cues=(
            "class_to_idx built per split",
            "used as they are",
            "labels encoded separately",
            "label map differs",
            "class_to_idx differs",
            "label mapping differs",
            "encoder refit",
            "encoder re-fit",
            "class order differs", "labelmapping differs", "labelmap differs",
        ),
        pattern=(
            r"class_to_idx (?:built per split|differs)|labels? .{0,120}used as they are|labels encoded separately|label "
            r"?map(?:ping)? differs|encoder re-?fit\w* on|class order differs"
        ),
        prints="training programs' own notes on how they map labels",
        means="The splits do not share one mapping of labels to numbers, so the same label can have two numbers.",
        not_shown="That the mappings differ in effect.",
        matches=(
            "[data] val: 409 classes, 20,114 images; class_to_idx built per split",
            "train: labels mapped with model.config.label2id; validation: glue labels ['entailment', 'neutral'] used as they are",
            "WARNING label map differs between train and val",
        ),
        rejects=(
            Reject("class_to_idx loaded from classes.json for all splits", "one mapping"),
            Reject("weights used as they are", "not labels"),
        ),
        specificity=2,
    ),
    Signature(
        id="evaluation-mismatch/newly-initialized",
        cls=CLS,
        role=Role.CONTEXT,
        kind="weights not in the checkpoint",
        cues=("were not initialized from the model checkpoint", "newly initialized", "weights of the model checkpoint at"),
        pattern=(
            r"Some weights of (?P<key>\S+) were not initialized from the model checkpoint|are newly initialized|Some weights of "
            r"the model checkpoint at .{0,200}were not used"
        ),
        prints="transformers PreTrainedModel.from_pretrained",
        means=(
            "Some weights were not in the checkpoint and start at random: normal for a new head before training, a fault when a "
            "trained model is evaluated."
        ),
        not_shown="Which of the two this is.",
        matches=(
            "Some weights of BertForSequenceClassification were not initialized from the model checkpoint at bert-base-uncased "
            "and are newly initialized: ['classifier.weight']",
            "Some weights of the model checkpoint at bert-base-uncased were not used when initializing BertModel: ['cls.bias']",
        ),
        rejects=(
            Reject("All the weights of BertModel were initialized from the model checkpoint at ./out.", "all were found"),
            Reject("weights initialized with xavier_uniform", "an initialiser"),
        ),
        specificity=1,
    ),
    Signature(
        id="evaluation-mismatch/gate",
        cls=CLS,
        role=Role.CAUSE,
        kind="evaluation gate not met",
        ignore_case=True,
        cues=(
            " is below ",
            "below threshold",
            "below the threshold",
            "quality gate",
            "validation gate",
            "gate failed",
            "did not meet the",
            "not blessed", "precision", "accuracy", "macro_f1", "is did not meet", "is not reached",
        ),
        pattern=(
            r"(?:Error|Exception|gate)\b.{0,80}\b(?P<metric>accuracy|acc|auc|auroc|f1\w*|macro_f1|recall|precision|map|ndcg|bleu"
            r"|rouge\w*|r2|score|metric)\b.{0,30}"
            r"(?:is |was )?(?:below|less than|under|did not meet|not reached)\b"
            r"|(?:quality|validation|evaluation|model) gate (?:failed|not passed|rejected)|model (?:was )?not blessed"
        ),
        prints="evaluation components and TFX Evaluator (blessing)",
        means="The trained model's score is below the pipeline's threshold, so the evaluation step ended the run on purpose.",
        not_shown="Whether the model is poor or the evaluation is wrong: compare with the score in training.",
        matches=(
            "RuntimeError: gate: accuracy 0.1132 is below 0.9",
            "ValueError: f1 0.41 is below threshold 0.8",
            "quality gate failed: auc 0.55 < 0.8",
        ),
        rejects=(
            Reject("accuracy is below best 0.91, checkpoint not saved", "an ordinary epoch"),
            Reject("RuntimeError: free memory 0.4 GiB is below 2 GiB", "not a score"),
        ),
        fixes=(EVAL_ON_TRAIN, SAME_PREPROCESSING, ONE_LABEL_MAP),
        specificity=2,
        fatal=True,
        status="degraded",
    ),
    Signature(
        id="evaluation-mismatch/eval-mode",
        cls=CLS,
        role=Role.CONTEXT,
        kind="evaluation in training mode",
        cues=(
            "model is in train mode during",
            "evaluating in train mode",
            "model.eval() was not called",
            "skip_special_tokens=False",
            "still in training mode", "model is still in train mode during valid", "model is still in train mode during eval", "model is in training mode during valid", "model is in training mode during eval",
        ),
        pattern=(
            r"model is (?:still )?in train(?:ing)? mode during (?:eval|valid)|evaluating in train mode|model\.eval\(\) was not "
            r"called|still in training mode|skip_special_tokens=False"
        ),
        prints="training programs' own notes",
        means="The evaluation runs with settings of training (dropout, batch statistics) or decodes with special tokens.",
        not_shown="How much the score suffers.",
        matches=(
            "WARNING model is in train mode during evaluation",
            "compute_metrics: batch_decode(predictions, skip_special_tokens=False)",
        ),
        rejects=(
            Reject("switching model to train mode", "before training"),
            Reject("batch_decode(ids, skip_special_tokens=True)", "as it should be"),
        ),
        specificity=1,
    ),
)

TREND_MEANS: dict[str, str] = {
    "trend/eval-below-chance": (
        "Evaluation is clearly below chance while training improves: predictions are systematically wrong, mostly by another label order."
    ),
    "trend/eval-collapse": (
        "Training improves while evaluation collapses or stays at chance from the start, which is more than overfitting."
    ),
    "trend/eval-perfect": (
        "Evaluation is perfect, or nearly so, within the first evaluations: too good too soon, so the label or the samples leak."
    ),
    "trend/eval-train-mode": (
        "The same data scores well in training mode and badly in evaluation mode: batch statistics, dropout or the mode itself."
    ),
}

TREND_FIXES: dict[str, tuple[Fix, ...]] = {
    "trend/eval-below-chance": (EVAL_ON_TRAIN, ONE_LABEL_MAP, SAME_PREPROCESSING),
    "trend/eval-collapse": (EVAL_ON_TRAIN, SAME_PREPROCESSING, ONE_LABEL_MAP, EVAL_MODE),
    "trend/eval-perfect": (REMOVE_LEAK, DEDUPLICATE),
    "trend/eval-train-mode": (EVAL_MODE, EVAL_ON_TRAIN),
}
