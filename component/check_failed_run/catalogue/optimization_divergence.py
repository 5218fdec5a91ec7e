"""Loss that climbs or blows up while it is still finite. Mostly a trend, judged from the curve; a few programs say so in words."""

from __future__ import annotations

from check_failed_run.catalogue.model import Change, Fix, Reject, Role, Signature

CLS = "optimization-divergence"

LOWER_LR = Fix(
    action="Lower the peak learning rate[[ from {learning_rate} to {learning_rate_tenth}]] and start again",
    change=Change.HYPERPARAMETER,
    impact="the loss goes down instead of up; training needs somewhat more steps",
    validate="the loss falls over the first 200 steps past the peak of the warm-up, and grad_norm does not grow",
    time_to_try="15 min",
    gain=0.85,
    confidence=0.7,
)
WARMUP = Fix(
    action="Warm the learning rate up linearly over 1 to 5 % of the steps",
    change=Change.HYPERPARAMETER,
    impact="Adam's variance estimates settle before large updates are made",
    validate="no jump of the loss while the rate rises; grad_norm stays of the order of its first values for 200 steps",
    time_to_try="10 min",
    gain=0.6,
    confidence=0.6,
)
CLIP = Fix(
    action="Clip gradients by norm at 1.0[[ (now {grad_clip})]]",
    change=Change.HYPERPARAMETER,
    impact="bounds the damage of single batches; no cure for a rate that is far too high",
    validate="the loss shows no jumps above twice its running mean in 200 steps",
    time_to_try="10 min",
    gain=0.5,
    confidence=0.6,
)
ROLL_BACK = Fix(
    action=(
        "Resume from the newest checkpoint from before the rise[[ ({checkpoint})]] with half the rate[[ ({learning_rate_half})]] "
        "and skip the batches of the spike"
    ),
    change=Change.USE_CHECKPOINT,
    impact="keeps the progress made until then",
    validate="the loss passes the step of the rise[[ ({step})]] without it, and stays at or below its earlier value for 200 steps",
    time_to_try="20 min",
    gain=0.7,
    confidence=0.6,
)
SCALE_RATE = Fix(
    action=(
        "Scale the learning rate with the effective batch size (linear for SGD, square root for Adam)[[; now {learning_rate} at "
        "batch {batch_size}]]"
    ),
    change=Change.HYPERPARAMETER,
    impact="a recipe written for another batch size trains stably at this one",
    validate="the loss falls over 200 steps after the warm-up",
    time_to_try="10 min",
    gain=0.7,
    confidence=0.5,
)
FIX_SIGN = Fix(
    action=(
        "Check the sign of each term of the loss: a likelihood, reward, Dice or similarity that is to be maximised enters with a "
        "minus, cross-entropy with a plus"
    ),
    change=Change.CODE,
    impact="the optimiser minimises what it should",
    validate="the loss has a lower bound, and the evaluation metric rises over 200 steps",
    time_to_try="15 min",
    gain=0.95,
    confidence=0.8,
)

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="optimization-divergence/message",
        cls=CLS,
        role=Role.CAUSE,
        kind="loss grows",
        ignore_case=True,
        cues=(
            "loss is diverging",
            "loss diverge",
            "loss has diverged",
            "training diverge",
            "training has diverged",
            "training is diverging",
            "loss explo",
            "loss is exploding",
            "exploding gradient",
            "gradient explosion",
            "model diverged",
            "model has diverged",
            "optimization diverged",
            "diverged at step",
            "diverged at epoch",
            "divergence detected", "optimisation appears to be diverging", "optimisation appears to be exploding", "optimization appears to be diverging", "optimization appears to be exploding", "optimisation appears to be diverged", "optimisation appears to be exploded",
        ),
        pattern=(
            r"\b(?:loss|training|model|optimi[sz]ation|run) (?:is |has |was |appears to be |seems to be )?(?:diverging|diverged"
            r"|exploding|exploded)\b"
            r"|\bloss explosion\b|\b(?:gradient explosion|exploding gradients?) (?:detected|at step|at iteration)|\bdiverged at "
            r"(?:step|epoch|iteration) (?P<step>\d+)|\bdivergence detected\b"
        ),
        unless=(
            r"(?i)\bif (?:the |your )?(?:loss|training|model)|\bto (?:avoid|prevent)|may (?:cause|lead)|probably exploding|loss = "
            r"nan|when (?:the )?(?:loss|training)|early_stop_threshold"
        ),
        prints="training programs' own checks; spaCy, NeMo, fairseq forks, Tune schedulers",
        means="The program judged its own loss to be growing without bound.",
        not_shown="Why: learning rate, schedule, data or the sign of the loss.",
        matches=(
            "ERROR: training diverged at step 4210: loss 812.3 > 10x best",
            "RuntimeError: loss explosion at step 900",
            "WARNING Loss is diverging (8.21 vs. running mean 2.31), stopping",
            "Divergence detected: val_loss 91.2",
        ),
        rejects=(
            Reject(
                "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.", "the loss scale's end: nan-inf"
            ),
            Reject("If the loss diverges, lower the learning rate", "advice"),
            Reject("KL divergence loss: 0.21", "a name"),
        ),
        fixes=(LOWER_LR, WARMUP, CLIP, ROLL_BACK),
        specificity=3,
        status="diverged",
    ),
    Signature(
        id="optimization-divergence/early-stop-threshold",
        cls=CLS,
        role=Role.CAUSE,
        kind="divergence threshold",
        cues=("Divergence threshold", "divergence threshold", "divergence_threshold exceeded", "has diverged"),
        pattern=(
            r"Monitored metric (?P<metric>\S+) = (?P<value>\S+) has diverged|[Dd]ivergence threshold.{0,60}(?:exceeded|reached)"
            r"|Divergence threshold: (?P<threshold>\S+)\. Signaling"
        ),
        prints=(
            "Lightning EarlyStopping(divergence_threshold): 'Monitored metric val_loss = 91.2 has diverged. Divergence "
            "threshold: 10. Signaling Trainer to stop.'"
        ),
        means="The monitored value passed the threshold at which the run's owner calls it diverged, and training was stopped.",
        matches=(
            "Monitored metric val_loss = 91.2 has diverged. Divergence threshold: 10.0. Signaling Trainer to stop.",
            "divergence threshold 5.0 exceeded, stopping",
        ),
        rejects=(
            Reject("Stopping threshold reached: val_loss = 0.01 < 0.02. Signaling Trainer to stop.", "a goal that was reached"),
            Reject("EarlyStopping(divergence_threshold=10.0)", "a setting"),
        ),
        fixes=(LOWER_LR, WARMUP, ROLL_BACK),
        specificity=3,
        status="diverged",
    ),
    Signature(
        id="optimization-divergence/loss-spike",
        cls=CLS,
        role=Role.CONTEXT,
        kind="loss spike",
        ignore_case=True,
        cues=("loss spike", "spike detected", "spiky loss", "gradient spike", "grad norm spike", "grad_norm spike"),
        pattern=r"\b(?:loss|gradient|grad[ _]norm) spike\b|\bspike detected\b|spiky loss",
        prints="training programs' own checks; Megatron (check-for-spiky-loss), NeMo, OLMo",
        means="The loss jumped at this step.",
        not_shown="Whether it came back down: a spike that recovers is no failure.",
        matches=("WARNING: loss spike detected at step 880 (6.1 vs 2.4)", "Unexpected result 9.2 (message='Spiky loss')"),
        rejects=(
            Reject("spike_detector: enabled", "a setting"),
            Reject("CPU spike at 14:02", "not the loss"),
        ),
        specificity=1,
    ),
    Signature(
        id="optimization-divergence/lr-too-high",
        cls=CLS,
        role=Role.CAUSE,
        kind="learning rate",
        ignore_case=True,
        cues=(
            "learning rate too high",
            "learning rate is too high",
            "lr too high",
            "lr is too high",
            "learning rate too large",
            "learning rate is too large",
            "stopping early, the loss has diverged", "learning rate ", "lr is too large", " is too large", " is too high", "lr too large", " too large",
        ),
        pattern=r"(?:learning rate|\blr)(?: (?P<value>[\d.e-]+))? (?:is )?too (?:high|large)|stopping early, the loss has diverged",
        unless=r"(?i)\bif\b|\bmay\b|\bmight\b|\bcheck whether\b|\bperhaps\b|stopping early",
        prints="training programs' own checks",
        means="The program says that its learning rate is too high.",
        matches=("ERROR learning rate is too high: loss rose from 2.1 to 44.7", "abort: lr too high"),
        rejects=(
            Reject("If the loss is unstable, your learning rate is too high", "advice"),
            Reject("Stopping early, the loss has diverged", "fastai's and torch-lr-finder's range test ends like this on purpose"),
        ),
        fixes=(LOWER_LR, WARMUP, SCALE_RATE),
        specificity=2,
        status="diverged",
    ),
    Signature(
        id="optimization-divergence/resume-without-optimizer",
        cls=CLS,
        role=Role.CONTEXT,
        kind="resume without optimizer state",
        ignore_case=True,
        cues=(
            "no-resume-opt",
            "without optimizer state",
            "optimizer state not found",
            "optimizer states not loaded",
            "no optimizer state",
            "optimizer state was not",
            "loading only the model",
            "only model weights", "optimizer states were not restored", "optimizer state were not restored", "optimizer states was not restored", "optimizer states is not restored", "optimizer states were not loaded", "optimizer state is not restored",
        ),
        pattern=(
            r"--no-resume-opt\b|without optimizer states?\b|no optimizer states? (?:found|in|loaded)|optimizer states? (?:was "
            r"|were |is )?not (?:found|loaded|restored)"
            r"|loading only (?:the )?model|only model weights (?:are |were )?(?:loaded|restored)"
        ),
        prints="timm --no-resume-opt, DeepSpeed load_checkpoint, programs' own loaders",
        means="Weights were restored without the optimizer's moments, so the first updates at a full rate can be far too large.",
        not_shown="That it did harm: see the loss after the resume.",
        matches=(
            "args: --resume out/last.pth.tar --no-resume-opt --lr 1e-3",
            "WARNING: resuming without optimizer state",
            "optimizer state not found in checkpoint, starting fresh",
        ),
        rejects=(
            Reject("Restoring model and optimizer state from checkpoint", "both were restored"),
            Reject("Saving optimizer state", "a save"),
        ),
        specificity=2,
    ),
    Signature(
        id="optimization-divergence/lr-not-scaled",
        cls=CLS,
        role=Role.CONTEXT,
        kind="rate of another batch size",
        cues=("auto_scale_lr", "LR is not scaled", "auto scaling lr"),
        pattern=r"auto_scale_lr ?= ?dict\(.{0,60}enable ?= ?False|LR is not scaled",
        prints="mmengine configs and runner",
        means="The learning rate is not adapted to the effective batch size of this run.",
        not_shown="Whether the two differ much.",
        matches=("auto_scale_lr = dict(base_batch_size=256, enable=False)", "auto_scale_lr = dict(enable=False, base_batch_size=64)"),
        rejects=(
            Reject("auto_scale_lr = dict(base_batch_size=256, enable=True)", "scaling is on"),
            Reject("LR has been automatically scaled from 0.004 to 0.000125", "scaled"),
        ),
        specificity=1,
    ),
)

TREND_MEANS: dict[str, str] = {
    "trend/divergence": "The loss turned and climbed far above its best value while it stayed finite, and did not come back.",
    "trend/divergence-negative": (
        "The loss falls without bound below zero while the evaluation gets no better: a term is maximised that should be minimised."
    ),
    "trend/divergence-warmup": (
        "The loss rose with the learning rate during or right after the warm-up: the peak rate is too high, or the warm-up too short."
    ),
    "trend/divergence-after-resume": (
        "The loss climbed after a resume although it was falling before: optimizer, schedule or data order were not restored."
    ),
    "trend/divergence-kl": "The policy ran away from its reference: KL grew by orders of magnitude while the reward collapsed.",
}

TREND_FIXES: dict[str, tuple[Fix, ...]] = {
    "trend/divergence": (LOWER_LR, ROLL_BACK, CLIP, SCALE_RATE),
    "trend/divergence-negative": (FIX_SIGN,),
    "trend/divergence-warmup": (LOWER_LR, WARMUP, CLIP, SCALE_RATE),
    "trend/divergence-after-resume": (
        Fix(
            action=(
                "Resume with optimizer and scheduler state[[ from {checkpoint}]]; where they are lost, warm up again from a "
                "tenth of the rate[[ ({learning_rate_tenth})]]"
            ),
            change=Change.USE_CHECKPOINT,
            impact="the first updates have the size of those before the stop",
            validate="learning rate and loss continue where the first run ended, for 200 steps",
            time_to_try="15 min",
            gain=0.9,
            confidence=0.8,
        ),
        LOWER_LR,
        CLIP,
    ),
    "trend/divergence-kl": (
        Fix(
            action=(
                "Restart from a checkpoint before the KL rose[[ ({checkpoint})]] with a tenth of the rate[[ "
                "({learning_rate_tenth})]] and a larger KL coefficient (beta 0.02 to 0.1)"
            ),
            change=Change.HYPERPARAMETER,
            impact="the policy stays near its reference, so rewards keep their meaning",
            validate="KL stays below about 1 and the reward does not fall for 200 steps",
            time_to_try="30 min",
            gain=0.85,
            confidence=0.7,
        ),
        CLIP,
        Fix(
            action="Stop the run when KL passes a limit (target_kl, or a callback)",
            change=Change.CODE,
            impact="saves the budget and the last good checkpoint",
            validate="the limit is logged, and a test run with a high rate stops at it",
            time_to_try="15 min",
            gain=0.3,
            confidence=0.8,
        ),
    ),
}
