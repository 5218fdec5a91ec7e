"""Loss, gradients, weights or probabilities that are NaN or infinite.

Plain metric lines are context here: whether a NaN in them is the failure is judged from the whole curve. The messages
below say it themselves. A NaN in the *input table* that a library refuses is ``data-pipeline``; a skipped step or two
of dynamic loss scaling is normal.
"""

from __future__ import annotations

from check_failed_run.catalogue.model import Change, Fix, Reject, Role, Signature

CLS = "nan-inf"

ANOMALY = Fix(
    action=(
        "Run a few steps from just before the first NaN[[ (step {step})]] with torch.autograd.set_detect_anomaly(True) "
        "(jax_debug_nans, tf.debugging.enable_check_numerics)"
    ),
    change=Change.DIAGNOSE,
    impact="names the operation that makes the first NaN; about 2 to 5 times slower",
    validate="the run stops at an operation of the model within 50 steps",
    time_to_try="15 min",
    gain=0.3,
    confidence=0.8,
)
LOWER_LR = Fix(
    action="Lower the peak learning rate[[ from {learning_rate} to {learning_rate_tenth}]] and warm up over a few per cent of the steps",
    change=Change.HYPERPARAMETER,
    impact="updates stay small enough for weights and activations to stay finite",
    validate="loss and grad_norm are finite and grad_norm does not grow over 200 steps",
    time_to_try="15 min",
    gain=0.7,
    confidence=0.6,
)
CLIP = Fix(
    action="Clip gradients by norm at 1.0[[ (now {grad_clip})]], after unscaling where a GradScaler is used",
    change=Change.HYPERPARAMETER,
    impact="a single bad batch can no longer throw the weights away",
    validate="the norm after clipping is at most 1.0, and the loss stays finite for 200 steps",
    time_to_try="10 min",
    gain=0.6,
    confidence=0.6,
)
BF16 = Fix(
    action="Train in bf16 (or fp32) instead of fp16[[ (now {precision})]]",
    change=Change.HYPERPARAMETER,
    impact="the range of fp32: activations and gradients above 65504 no longer overflow; no loss scaling needed",
    validate="no overflow or skipped step and a finite grad_norm for 200 steps",
    time_to_try="15 min",
    gain=0.85,
    confidence=0.6,
    only=("precision", "fp16"),
)
EARLIER_CHECKPOINT = Fix(
    action="Go back to the newest checkpoint from before the first NaN[[ ({checkpoint})]]; later ones hold NaN weights",
    change=Change.USE_CHECKPOINT,
    impact="starts from finite weights and optimizer state",
    validate="all weights of the checkpoint are finite and the first 50 losses are near their earlier values",
    time_to_try="10 min",
    gain=0.6,
    confidence=0.8,
)
GUARD_OP = Fix(
    action=(
        "Guard the operation: eps inside sqrt, log and division, logsumexp or *_with_logits forms, clamp of exponents, no mean "
        "over an empty mask"
    ),
    change=Change.CODE,
    impact="the value and its gradient stay finite at the edge case",
    validate="the same batch gives a finite loss and gradient, then 200 steps without NaN",
    time_to_try="30 min",
    gain=0.9,
    confidence=0.7,
)
CHECK_INPUT = Fix(
    action="Check the batch of the first NaN for non-finite or extreme inputs, empty targets and all-masked samples",
    change=Change.DIAGNOSE,
    impact="tells bad data from a bad update",
    validate="the batch's min, max and isfinite are known; the same batch on fresh weights is finite or is not",
    time_to_try="15 min",
    gain=0.4,
    confidence=0.7,
)
STOP_ON_NAN = Fix(
    action="Stop the run (or skip the update) when the loss or the gradient norm is not finite",
    change=Change.CODE,
    impact="saves the rest of the budget and the last good checkpoint",
    validate="a batch with an injected NaN stops the run at once",
    time_to_try="10 min",
    gain=0.3,
    confidence=0.9,
)

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="nan-inf/loss-message",
        cls=CLS,
        role=Role.CAUSE,
        kind="loss not finite",
        ignore_case=True,
        cues=(
            "loss is nan",
            "loss is inf",
            "loss is not finite",
            "loss was nan",
            "loss became",
            "loss has become",
            "loss turned",
            "loss went nan",
            "nan loss",
            "loss=nan, ",
            "non-finite loss",
            "nonfinite loss",
            "loss is non-finite",
            "infinite or nan",
            "nan or inf",
            "nan/inf",
            "inf/nan",
            "nans in loss",
            "invalid loss, terminating",
            "loss = nan",
            "nan detected",
            "nan encountered",
            "nan found in",
            "nans found in",
            "detected nan",
            "encountered nan",
            "found nan",
            "loss is nonfinite",
            "not finite, stopping",
            "got nan",
            "nan in loss",
            "loss contains nan",
            "loss is infinite", "activations", "activation",
        ),
        pattern=(
            r"\bloss(?:es)? (?:is|was|are|became|becomes|has become|turned|went|=) ?:?(?:nan|inf|infinite|infinity|not finite"
            r"|non-?finite)\b"
            r"|\b(?:non-?finite|nan|nan/inf|inf/nan|infinite) (?:training |train )?loss\b(?! ?(?:filter|scale|check|guard|policy"
            r"|s? ?= ?false))|\bloss contains (?:nan|inf)"
            r"|loss became infinite or nan at iteration ?= ?(?P<step>\d+)|invalid loss, terminating training|model diverged with loss = nan"
            r"|(?:detected|encountered|found|got) (?:a )?nans?(?:[ /]|\b).{0,40}\b(?:loss|grad\w*|weights?|param\w*|outputs?"
            r"|logits|activations?)\b"
            r"|\bnans? (?:detected|encountered|found|is detected)\b.{0,40}\b(?:loss|grad\w*|weights?|param\w*|outputs?|logits"
            r"|activations?|step|iteration|batch)\b"
            r"|nans? in (?:the )?loss\b|loss\b.{0,40}\bnot finite, stopping|nan or inf (?:found|detected|encountered) in"
        ),
        # option listings, advice, checks that passed, evaluation of an unused metric
        unless=(
            r"\bif (?:the |your )?(?:train\w* )?loss (?:is|becomes|was)|\bwhen (?:the )?loss|to avoid|may (?:cause|lead|produce)"
            r"|could (?:cause|lead)|\bno nan|\b0 nan|number of nan"
            r"|(?:terminate|check|skip|stop|detect|halt|raise|ignore|filter)\w*_?(?:on|for|in|_)_?nan\w*\s*[:=]"
            r"|nan_?loss\w*\s*[:=]\s*(?:true|false|none|\d)|# .*nan"
        ),
        prints=(
            "training programs and trainers: torchvision and DETR references, detectron2, mmengine, Keras TerminateOnNaN, "
            "TensorFlow NanTensorHook, SpeechBrain"
        ),
        means="The program found its loss (or gradients, weights) to be NaN or infinite.",
        not_shown="Where the first NaN arose: the curve before it, the precision and the batch tell.",
        matches=(
            "Loss is nan, stopping training",
            "AssertionError: loss is nan at step 812",
            "2026-06-20 14:48:40,500 - speechbrain.core - WARNING - Loss is nan.",
            "ERROR train: step 91: loss is nan, rolling back to step 90 and halving the learning rate",
            "FloatingPointError: Loss became infinite or NaN at iteration=1412!",
            "Batch 17: Invalid loss, terminating training",
            "ERROR:tensorflow:Model diverged with loss = NaN.",
            "tensorflow.python.training.basic_session_run_hooks.NanLossDuringTrainingError: NaN loss during training.",
            "ValueError: Non-finite loss at step 300",
            "RuntimeError: NaN detected in loss at step 88",
            "WARNING: NaN or Inf found in input tensor.",
        ),
        rejects=(
            Reject("callbacks: terminate_on_nan: True, loss: mse", "a setting"),
            Reject("If the loss is NaN, try a lower learning rate", "advice"),
            Reject(" number of skipped iterations:   0 | number of nan iterations:   0 |", "a counter at 0"),
            Reject("val_loss: 0.138 val_dice_tiny: nan", "a metric line, and the loss is finite"),
            Reject("ValueError: Input X contains NaN.", "the table's missing values: data-pipeline"),
        ),
        fixes=(EARLIER_CHECKPOINT, CHECK_INPUT, LOWER_LR, BF16),
        specificity=3,
        outranks=("cuda-runtime/device-assert",),
        status="diverged",
    ),
    Signature(
        id="nan-inf/terminate-on-nan",
        cls=CLS,
        role=Role.CAUSE,
        kind="output not finite",
        cues=("contains NaN or Inf", "is not finite. Previous best value", "nan or infinite", "loss is nan or inf", "is nan or inf", "The loss returned in `", "the loss returned in `", "The loss returned in", "the loss returned in", "Detected nan and/or inf values in `"),
        pattern=(
            r"TerminateOnNan: .{0,200}contains NaN or Inf|Monitored metric (?P<metric>\S+) = (?P<value>\S+) is not finite\. "
            r"Previous best value"
            r"|[Tt]he loss returned in `?\w*training_step`? is (?:nan|inf|nan or inf)|(?:nan or infinite|is nan or "
            r"inf)\b.{0,80}(?:loss|metric|grad|param|weights)"
            r"|Detected nan and/or inf values in `(?P<key>[^`]+)`"
        ),
        prints="ignite.handlers.TerminateOnNan; Lightning EarlyStopping(check_finite) and detect_nan_parameters",
        means="A check of the trainer found a NaN or infinite output, metric or parameter and ended the run.",
        not_shown="Where the NaN arose.",
        matches=(
            "TerminateOnNan: Output 'nan' contains NaN or Inf. Stop training",
            "Monitored metric val_loss = nan is not finite. Previous best value was 0.412. Signaling Trainer to stop.",
            "ValueError: The loss returned in `training_step` is nan or inf.",
        ),
        rejects=(
            Reject(
                "Monitored metric val_loss did not improve in the last 5 records. Best score: 0.412. Signaling Trainer to stop.",
                "ordinary early stopping",
            ),
            Reject("EarlyStopping(check_finite=True, monitor=val_loss)", "a setting"),
        ),
        fixes=(ANOMALY, CHECK_INPUT, LOWER_LR, EARLIER_CHECKPOINT),
        specificity=3,
        fatal=True,
        status="diverged",
    ),
    Signature(
        id="nan-inf/anomaly-mode",
        cls=CLS,
        role=Role.CAUSE,
        kind="NaN from a named operation",
        cues=("returned nan values in its",),
        pattern=r"Function '?(?P<op>\w+)'? returned nan values in its (?P<value>\d+)(?:th|st|nd|rd) output",
        prints="torch/csrc/autograd/python_anomaly_mode and engine.cpp, with detect_anomaly",
        means="In the backward pass this operation gave the first NaN gradient; the forward trace printed above it names the line of code.",
        not_shown="Whether its input was already extreme; for MulBackward0 the factor is mostly an infinite gradient from elsewhere.",
        matches=(
            "RuntimeError: Function 'LogBackward0' returned nan values in its 0th output.",
            "RuntimeError: Function 'SqrtBackward' returned nan values in its 0th output.",
            "RuntimeError: Function MulBackward0 returned nan values in its 1th output.",
        ),
        rejects=(
            Reject(
                "UserWarning: Error detected in LogBackward0. Traceback of forward call that caused the error:",
                "the trace that comes with it",
            ),
            Reject(
                "RuntimeError: Function AddBackward0 returned an invalid gradient at index 0 - got [4] but expected shape "
                "compatible with [8]",
                "shapes",
            ),
        ),
        fixes=(GUARD_OP, CHECK_INPUT, LOWER_LR),
        specificity=3,
        fatal=True,
    ),
    Signature(
        id="nan-inf/anomaly-forward-trace",
        cls=CLS,
        role=Role.CONTEXT,
        kind="forward trace of anomaly mode",
        cues=("Error detected in ",),
        pattern=r"Error detected in (?P<op>\w*Backward\d*)\.",
        prints="torch anomaly mode, before the exception; the stack below it is the forward call",
        means="The stack that follows is where the operation was called in the forward pass.",
        not_shown="The kind of error: anomaly mode prints it for any failure of the backward pass.",
        matches=(
            "UserWarning: Error detected in LogBackward0. Traceback of forward call that caused the error:",
            "[W python_anomaly_mode.cpp:104] Warning: Error detected in SqrtBackward. Traceback of forward call that caused the error:",
        ),
        rejects=(
            Reject("Error detected in configuration: unknown key lr", "no backward function"),
            Reject("RuntimeError: Function 'LogBackward0' returned nan values in its 0th output.", "the verdict itself"),
        ),
        specificity=2,
    ),
    Signature(
        id="nan-inf/loss-scale-minimum",
        cls=CLS,
        role=Role.CAUSE,
        kind="loss scale at its minimum",
        cues=(
            "Minimum loss scale reached",
            "loss scale already at minimum",
            "inimum loss scale reached",
            "loss scale reached minimum",
            "consecutive overflow",
            "caused non-finite gradients", "Loss scale already at minimum",
        ),
        pattern=(
            r"[Mm]inimum loss scale reached(?: \((?P<value>[\d.e-]+)\))?|[Ll]oss scale already at minimum|loss scale reached minimum"
            r"|\b(?P<count>\d{1,9}) consecutive overflows?|loss scal\w{1,12} caused non-finite gradients"
        ),
        unless=r"min_loss_scale\s*[:=]",
        prints="fairseq dynamic_loss_scaler (FloatingPointError), deepspeed fp16 loss_scaler, apex and Megatron grad scalers",
        means=(
            "Every gradient overflowed in half precision however far the loss scale was lowered: the loss or the activations are exploding."
        ),
        not_shown="Whether the loss diverged first (see its curve) or a part of the model can't run in fp16.",
        matches=(
            "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding. Try lowering the learning "
            "rate, using gradient clipping",
            "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
            "RuntimeError: 50 consecutive overflows, stopping",
        ),
        rejects=(
            Reject("OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 32768, reducing to 16384", "one skipped step: normal by itself"),
            Reject("fp16: {loss_scale_window: 1000, min_loss_scale: 1}", "a setting"),
        ),
        fixes=(BF16, LOWER_LR, CLIP, EARLIER_CHECKPOINT),
        specificity=3,
        fatal=True,
        status="crashed",
    ),
    Signature(
        id="nan-inf/overflow-skip",
        cls=CLS,
        role=Role.CONTEXT,
        kind="step skipped by dynamic loss scaling",
        ignore_case=True,
        cues=(
            "overflow! rank",
            "gradient overflow",
            "grad overflow",
            "skipping step",
            "inf/nan gradients",
            "found_inf",
            "overflow detected",
        ),
        pattern=(
            r"OVERFLOW! Rank (?P<rank>-?\d+) Skipping step\. Attempted loss scale: (?P<old>[\d.e+]+)(?:, reducing to (?P<value>[\d.e+-]+))?"
            r"|gradient overflow detected, (?:ignoring gradient|skipping step)?,? ?(?:setting loss scale to: (?P<value2>[\d.e+-]+))?"
            r"|grad(?:ient)? overflow[.,:]?\s+(?:skipping (?:step|update)|scale)|overflow detected\b.{0,40}skip|skipping step[, "
            r"].{0,40}(?:loss scale|reducing)"
        ),
        prints="deepspeed loss_scaler.update_scale, fairseq trainer, apex amp handle, training loops with GradScaler",
        means="A gradient overflowed in half precision, so the step was skipped and the loss scale halved.",
        not_shown="A fault: some at the start, and one now and then, are how dynamic loss scaling works. Only an unbroken series counts.",
        matches=(
            "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 32768, reducing to 16384",
            "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1",
            "NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 64.0",
            "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
            "gradient overflow, skipping step, loss scale 524288 -> 262144",
            "GradScaler: gradient overflow, scale 131072.0 -> 65536.0",
        ),
        rejects=(
            Reject("OverflowError: Python int too large to convert to C long", "an integer"),
            Reject("FloatingPointError: Minimum loss scale reached (0.0001).", "the end of the series"),
            Reject("Skipping step 3 of the tutorial", "not a training step"),
        ),
        specificity=1,
    ),
    Signature(
        id="nan-inf/trainer-guard",
        cls=CLS,
        role=Role.CAUSE,
        kind="gradients or parameters not finite",
        cues=(
            "found NaN in local",
            "found Inf in local",
            "Unexpected result nan",
            "Unexpected result inf",
            "patience is exhausted",
            "Parameter is not finite",
            "arameter is not finite",
            "he total norm of order",
            "grad norm is nan",
            "grad_norm is nan",
            "gradient norm is nan",
            "gradients are nan",
            "non-finite gradient",
            "Non-finite gradient",
            "onfinite gradient",
            "are non-finite",
            "is non-finite",
            "nan gradients",
            "NaN gradients",
            "NaN/Inf gradients",
            "radients contain nan",
            "radients contain NaN",
            "weights contain NaN",
            "weights are NaN", "nan/inf gradients encountered", "parameters contain non-finite", "gradients contain non-finite", "nan/inf gradient encountered", "parameters contain nonfinite", "gradient norm is not finite",
        ),
        pattern=(
            r"found (?:NaN|Inf) in local (?P<key>[\w ]+?) for bucket|Unexpected result (?P<value>nan|inf)\b.{0,80}|Loss is not "
            r"finite and patience is exhausted"
            r"|[Pp]arameter is not finite|The total norm of order \S+ for (?:a )?gradients from `?parameters`? is non-finite"
            r"|(?i:grad(?:ient)?[ _]norm is (?:nan|inf|not finite)|(?:non-?finite|nan|nan/inf) gradients? (?:found|detected"
            r"|encountered|at|in|for)|gradients (?:are|contain) (?:nan|inf|non-?finite)"
            r"|(?:weights|parameters) (?:are|contain) (?:nan|inf|non-?finite))"
        ),
        prints=(
            "Megatron (check_for_nan_in_grad, rerun state machine), SpeechBrain core.check_gradients, "
            "torch.nn.utils.clip_grad_norm_(error_if_nonfinite)"
        ),
        means="Gradients or parameters are NaN or infinite; the trainer's guard says so.",
        not_shown="Whether the loss or the hardware (Megatron's rerun machine tells) made the first one.",
        matches=(
            "AssertionError: Rank 5: found NaN in local grad norm for bucket #0 in backward pass before data-parallel "
            "communication collective",
            "RuntimeError: Unexpected result nan (message='found NaN in local forward loss calculation')",
            "ValueError: Loss is not finite and patience is exhausted. To debug, wrap `fit()` with autograd's `detect_anomaly()`, e.g.",
            "speechbrain.core - WARNING - Parameter is not finite: Parameter containing:",
            "RuntimeError: The total norm of order 2.0 for gradients from `parameters` is non-finite, so it cannot be clipped.",
            "ERROR grad_norm is nan at step 40",
        ),
        rejects=(
            Reject("INFO rerun state machine: no unexpected result found in 100 iterations", "a check that passed"),
            Reject("EarlyStopping: patience is exhausted after 10 epochs", "ordinary early stopping"),
            Reject("check_for_nan_in_loss_and_grad ............ True", "a setting"),
        ),
        fixes=(EARLIER_CHECKPOINT, LOWER_LR, CLIP, CHECK_INPUT),
        specificity=3,
    ),
    Signature(
        id="nan-inf/debug-nans",
        cls=CLS,
        role=Role.CAUSE,
        kind="NaN from a named operation",
        cues=(
            "invalid value (nan) encountered",
            "invalid value (inf) encountered",
            "Tensor had NaN",
            "Tensor had Inf",
            "had NaN and Inf",
            "CheckNumerics",
            "heck numerics", "Detected Infinity or NaN in output", "detected Infinity or NaN in output", "Tensor had +Inf", "Tensor had -Inf",
        ),
        pattern=(
            r"FloatingPointError: invalid value \((?P<value>nan|inf)\) encountered in (?P<op>[\w. ()-]+)|Tensor had (?P<kind>-?Inf"
            r"|\+?Inf|NaN|NaN and Inf|Inf and NaN)\b"
            r"|[Dd]etected Infinity or NaN in output (?P<key>\d+) of (?:eager|graph) op .(?P<op2>\w+)"
        ),
        prints="JAX with jax_debug_nans or jax_debug_infs; TensorFlow CheckNumerics and tf.debugging.enable_check_numerics",
        means="This operation gave the first NaN or infinite value.",
        not_shown="Whether its inputs were already extreme.",
        matches=(
            "FloatingPointError: invalid value (nan) encountered in jit(log)",
            "jaxlib.FloatingPointError: invalid value (nan) encountered in mul",
            "InvalidArgumentError: logits : Tensor had NaN values [Op:CheckNumerics]",
            "tensorflow.python.framework.errors_impl.InvalidArgumentError: Gradient is : Tensor had Inf and NaN values",
        ),
        rejects=(
            Reject("RuntimeWarning: invalid value encountered in log", "numpy's warning, no stop"),
            Reject("jax_debug_nans=True", "a setting"),
        ),
        fixes=(GUARD_OP, CHECK_INPUT, LOWER_LR),
        specificity=3,
        fatal=True,
    ),
    Signature(
        id="nan-inf/sampling-probabilities",
        cls=CLS,
        role=Role.CAUSE,
        kind="NaN probabilities when sampling",
        cues=("probability tensor contains either",),
        pattern=r"probability tensor contains either `?inf`?, `?nan`? or element < 0",
        prints="torch.multinomial: a RuntimeError on CPU, a device-side assert on CUDA",
        means=(
            "The model gave NaN or infinite logits, so no token can be sampled; the CUDA assert only reports what the last "
            "update (or fp16) made."
        ),
        not_shown="When the weights became NaN: see loss and grad_norm in the steps before.",
        matches=(
            "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
            "../aten/src/ATen/native/cuda/TensorCompare.cu:110: _assert_async_cuda_kernel: block: [0,0,0], thread: [0,0,0] "
            "Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed.",
        ),
        rejects=(
            Reject("Assertion `t >= 0 && t < n_classes` failed.", "a label outside the range: data-pipeline"),
            Reject("RuntimeError: CUDA error: device-side assert triggered", "the consequence, without the reason"),
        ),
        fixes=(EARLIER_CHECKPOINT, LOWER_LR, CLIP, BF16),
        specificity=3,
        fatal=True,
        outranks=("cuda-runtime/", "process-crash/", "nccl-distributed/"),
    ),
    Signature(
        id="nan-inf/distribution-constraint",
        cls=CLS,
        role=Role.CAUSE,
        kind="NaN parameters of a distribution",
        cues=("to satisfy the constraint", "The parameter logits has invalid values", "has invalid values"),
        pattern=(
            r"Expected (?:parameter|value) (?P<key>\w+).{0,600}to satisfy the constraint|The (?:parameter|value argument) "
            r"(?P<key2>\w+).{0,40} has invalid values"
        ),
        prints="torch.distributions.Distribution.__init__ (validate_args); PPO and SAC policies, VAEs",
        means="A distribution was built from values outside their range: after an update this is mostly NaN from the network.",
        not_shown="Whether the values are NaN or merely negative (a scale without softplus or exp): the tensor printed below tells.",
        matches=(
            "ValueError: Expected parameter logits (Tensor of shape (64, 4)) of distribution Categorical(logits: torch.Size([64, "
            "4])) to satisfy the "
            "constraint IndependentConstraint(Real(), 1), but found invalid values:",
            "ValueError: Expected parameter loc (Tensor of shape (1, 6)) of distribution Normal(loc: torch.Size([1, 6]), scale: "
            "torch.Size([1, 6])) to satisfy the constraint Real(), but found invalid values:",
            "ValueError: The parameter logits has invalid values",
        ),
        rejects=(
            Reject("pip: could not find a version to satisfy the constraint torch<2", "a package"),
            Reject("ValueError: column age has an invalid value 'x'", "a table"),
        ),
        fixes=(CHECK_INPUT, LOWER_LR, CLIP, EARLIER_CHECKPOINT),
        specificity=2,
        fatal=True,
    ),
    Signature(
        id="nan-inf/numpy-warning",
        cls=CLS,
        role=Role.CONTEXT,
        kind="floating-point warning",
        cues=(
            "RuntimeWarning: divide by zero",
            "RuntimeWarning: invalid value",
            "RuntimeWarning: overflow",
            "RuntimeWarning: Mean of empty slice",
            "RuntimeWarning: Degrees of freedom",
        ),
        pattern=(
            r"RuntimeWarning: (?P<kind>divide by zero|invalid value|overflow) encountered in (?P<op>\w+)|RuntimeWarning: (?:Mean "
            r"of empty slice|Degrees of freedom)"
        ),
        prints="numpy, scipy, pandas in preprocessing, losses and metrics",
        means="A numpy operation gave infinity or NaN at this place; if it feeds the model, a NaN loss follows.",
        not_shown="Whether the value is used.",
        matches=(
            "/app/features.py:25: RuntimeWarning: divide by zero encountered in divide",
            "RuntimeWarning: invalid value encountered in log",
            "RuntimeWarning: overflow encountered in exp",
        ),
        rejects=(
            Reject("ZeroDivisionError: division by zero", "an exception, not numpy"),
            Reject("UndefinedMetricWarning: Precision is ill-defined", "a metric without samples"),
        ),
        specificity=1,
    ),
    Signature(
        id="nan-inf/nan-iterations",
        cls=CLS,
        role=Role.CONTEXT,
        kind="counter of NaN iterations",
        # Megatron prints the counter in three columns, and zero on every line
        cues=tuple(f"nan iterations:{' ' * blanks}{digit}" for blanks in (1, 2, 3) for digit in range(1, 10)),
        pattern=r"number of nan iterations:\s*(?P<value>[1-9]\d*)",
        prints="Megatron-LM training_log",
        means="That many iterations since the last log line had a NaN loss or gradient.",
        not_shown="Whether they go on.",
        matches=("loss scale: 1.0 | number of skipped iterations:   1 | number of nan iterations:   3 |",),
        rejects=(
            Reject("number of skipped iterations:   9 | number of nan iterations:   0 |", "none"),
            Reject("number of iterations: 300", "another counter"),
        ),
        specificity=2,
    ),
    Signature(
        id="nan-inf/loss-nan-line",
        cls=CLS,
        role=Role.CONTEXT,
        kind="metric line with a loss that is not finite",
        ignore_case=True,
        cues=(
            ": nan",
            "= nan",
            "loss nan",
            "loss  nan",
            "loss   nan",
            "loss -nan",
            "loss     nan",
            "=nan",
            ":nan",
            ":-nan",
            "=-nan",
            "nanxxx",
            "loss: inf",
            "loss: -inf",
            "loss=inf",
            "loss=-inf",
            "loss inf",
            "loss -inf",
            "loss:inf",
            ": inf,",
            ": inf}",
            ": infinity",
            ":inf", "+infinity", "-infinity", "infinity", "-nan.0",
        ),
        pattern=(
            # the second branch: objectives that tree libraries print as <set>-<metric>:<value> or <set>'s <metric>: <value>
            r"(?<![\w])(?P<name>(?:\w+[ /.])?\w*loss|(?:train|learn|valid\w*|eval|test|dev)\w*(?:-|'s )(?:mae|rmse|mse|logloss"
            r"|mlogloss|l1|l2|error|merror|rmsle|poisson-nloglik|\w*deviance)|learn)"
            r"['\"]?\s{0,8}[:=]?\s{0,8}['\"]?(?P<value>-?nan(?:xxx|\.0)?|[-+]?inf(?:inity)?)(?![\w.]|\.\d)"
        ),
        prints="every trainer's metric lines: loss: nan, 'loss': nan, loss=nan, \"loss\": NaN, lm loss: nan, train-mae:nan, loss: nanxxx",
        means="The loss is NaN or infinite on this line; whether it stays so, the curve shows.",
        not_shown="Where it came from, and whether the run recovered.",
        matches=(
            "{'loss': nan, 'grad_norm': nan, 'learning_rate': 4.758e-05, 'epoch': 0.10}",
            '{"step": 40, "loss": NaN, "lr": 0.001}',
            "epoch 1 step 61 loss nan grad_norm nan lr 0.0009",
            "64/64 - 4s - 56ms/step - accuracy: 0.1040 - loss: nan - val_accuracy: 0.0879 - val_loss: nan",
            "[1]\ttrain-mae:nan\teval-mae:nan",
            " iteration  120/ 5000 | lm loss: nan | loss scale: 1.0 |",
            "steps:   5%|x | 180/3720 [03:55<1:17:17,  1.31s/it, avr_loss=nan]",
            "CTCLoss: nanxxx, NRTRLoss: nanxxx, loss: nanxxx, avg_reader_cost: 0.2",
            "Epoch 1: 100%|x| 40/40 [00:01<00:00, v_num=0, train_loss=nan.0, val_loss=13.30]",
            "step 1411 loss inf grad_norm nan scale 4096.0",
        ),
        rejects=(
            Reject("val_loss: 0.138 val_dice_tiny: nan", "an auxiliary metric"),
            Reject("WARNING churn: metric pearson_r_segment_9 = nan (no rows in segment, not used)", "an unused metric"),
            Reject("{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 9.0e-05}", "the gradient, not the loss (judged by the curve)"),
            Reject("[LightGBM] [Warning] No further splits with positive gain, best gain: -inf", "not a loss"),
            Reject("loss: info level logging on", "a word"),
        ),
        fixes=(EARLIER_CHECKPOINT, CHECK_INPUT, LOWER_LR, BF16),
        specificity=1,
    ),
    Signature(
        id="nan-inf/grad-norm-nan-line",
        cls=CLS,
        role=Role.CONTEXT,
        kind="metric line with a gradient norm that is not finite",
        ignore_case=True,
        cues=(": nan", "= nan", "norm nan", "norm  nan", "norm -nan", "=nan", ":nan", "norm: inf", "norm=inf", "norm inf", ": inf,", "gradnorm", "+infinity", "-infinity", "infinity"),
        pattern=(
            r"(?<![\w])(?P<name>grad(?:ient)?[ _]?norm|gnorm)['\"]?\s{0,8}[:=]?\s{0,8}['\"]?(?P<value>nan|[-+]?inf(?:inity)?)(?![\w.])"
        ),
        prints=(
            "every trainer's metric lines; where the loss is hidden (Hugging Face's filter prints 0.0, Megatron drops the field) "
            "only this one tells"
        ),
        means="The gradient norm is NaN or infinite on this line; whether it stays so, the curve shows.",
        not_shown="A fault, where it is a single step or the start of dynamic loss scaling.",
        matches=(
            "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 9.04e-05, 'epoch': 0.3}",
            " iteration  700/ 6000 | loss scale: 1.0 | grad norm: nan | number of skipped iterations:   0 |",
            "epoch 0 step 5 loss 1.3796 grad_norm inf lr 0.001",
        ),
        rejects=(
            Reject("{'loss': nan, 'grad_norm': 1.2}", "the loss, which has its own signature"),
            Reject("grad_norm: 0.559", "finite"),
        ),
        specificity=1,
    ),
)

TREND_MEANS: dict[str, str] = {
    "trend/nan-early": (
        "The loss is NaN or infinite within the first 100 steps: precision, initialisation, input or the "
        "loss function itself, rather than slow drift."
    ),
    "trend/nan-after-stable": "The loss was finite and stable, then became NaN or infinite and stayed so.",
    "trend/nan-after-resume": (
        "The loss became NaN within a few steps after a resume, so the restored state (optimizer, scaler, precision) is suspect."
    ),
    "trend/nan-eval-only": (
        "The training loss stays finite while the evaluation loss is NaN: evaluation data, its precision or an empty evaluation batch."
    ),
    "trend/nan-hidden-zero": (
        "The loss is printed as 0.0 while grad_norm is NaN: the trainer's NaN filter hides a NaN loss, this is no convergence."
    ),
    "trend/loss-scale-collapse": "The loss scale fell step after step to its minimum: every gradient overflows in half precision.",
}

TREND_FIXES: dict[str, tuple[Fix, ...]] = {
    "trend/nan-early": (
        CHECK_INPUT,
        ANOMALY,
        LOWER_LR,
        BF16,
    ),
    "trend/nan-after-stable": (EARLIER_CHECKPOINT, LOWER_LR, CLIP, CHECK_INPUT),
    "trend/nan-after-resume": (
        Fix(
            action=(
                "Check that optimizer, scheduler and scaler state were restored with the weights, and that precision and "
                "learning rate are those of the first run"
            ),
            change=Change.DIAGNOSE,
            impact="tells a lost optimizer state from a damaged checkpoint",
            validate="step count, learning rate and loss scale after the resume continue those before it",
            time_to_try="15 min",
            gain=0.5,
            confidence=0.7,
        ),
        EARLIER_CHECKPOINT,
        LOWER_LR,
    ),
    "trend/nan-eval-only": (
        Fix(
            action=(
                "Find the evaluation batch that gives NaN: empty or all-masked targets, values not seen in training, fp16 "
                "overflow without the loss scaler"
            ),
            change=Change.DIAGNOSE,
            impact="names the sample or the precision at fault; training itself is sound",
            validate="the evaluation without that batch, or in fp32, is finite",
            time_to_try="15 min",
            gain=0.5,
            confidence=0.7,
        ),
        GUARD_OP,
        Fix(
            action="Evaluate in bf16 or fp32",
            change=Change.HYPERPARAMETER,
            impact="half-precision overflow in the forward pass goes away",
            validate="the next evaluation is finite",
            gain=0.7,
            confidence=0.5,
        ),
    ),
    "trend/nan-hidden-zero": (
        EARLIER_CHECKPOINT,
        BF16,
        LOWER_LR,
        Fix(
            action="Set logging_nan_inf_filter=False so that the log shows the NaN, and stop the run on a grad_norm that is not finite",
            change=Change.CONFIG,
            impact="the next NaN is seen at its first step",
            validate="the log prints the loss as it is",
            time_to_try="5 min",
            gain=0.3,
            confidence=0.9,
        ),
    ),
    "trend/loss-scale-collapse": (BF16, LOWER_LR, CLIP, EARLIER_CHECKPOINT),
}
