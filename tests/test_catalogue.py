"""What every entry of the catalogue must hold, checked from its own examples."""

# ruff: noqa: SIM905 (word lists read better as text)

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import time
import warnings

import pytest

from check_failed_run import catalogue
from check_failed_run.catalogue.model import CLASSES, Mark, Role

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import re._parser as parser  # the parsed form of a pattern; private, but it has stood still since 3.11

SIGNATURES = catalogue.signatures()
GROUPS_WITHOUT_CLASS = {Role.HARMLESS: "harmless", Role.ADVICE: "advice", Role.MARKER: "marker"}

COMMON_WORDS = frozenset(
    """loss error errors error: warning warning: warn info step steps epoch epochs iter iteration failed fail failure
    true false none null train training eval evaluation valid validation test model data batch rank time torch
    file line traceback exception cuda memory device lr learning_rate grad_norm checkpoint save load loading
    done finished started start stop exit code value size shape tensor float int self return import site-packages""".split()
)
"""Words of healthy logs: a cue that is one of them would send most lines of a healthy log to the patterns."""

GROUPS = frozenset(
    """interface threshold peer step epoch rank ranks path size value key host port code signal pid device permission principal metric region image
    command seq op numel numel_out timeout seconds joined expected attempt name kind count limit total free used label
    low high worker resource service project account role type address tasks replica interface version required found module package
    option allowed choices shape other task job node state reason quota bucket url status message axis dim dtype percent
    component artifact parameter zone machine accelerator user group line column index classes length maximum field
    requested available unit process parent api scale old new layer file expected_size actual_size got want peer missing""".split()
)

RUN_VALUES = frozenset(
    """batch_size batch_size_half eval_batch_size learning_rate learning_rate_tenth learning_rate_half grad_clip accumulation
    accumulation_double precision world_size rank step checkpoint command log location output_dir path""".split()
)
"""Values of the run that a fix template may use besides the signature's own groups."""

HOSTILE = {
    "letters": "a" * 20_000,
    "spaces": " " * 20_000,
    "digits": "1" * 20_000,
    "parentheses": "(" * 20_000,
    "words": "ab " * 6_666,
    "quotes": "'\"" * 10_000,
    "path": "/a.b" * 5_000,
    "colons": "a: " * 6_666,
    "numbers": "1.5, " * 4_000,
}


def every(role: Role | None = None):
    chosen = [s for s in SIGNATURES if role is None or s.role is role]
    return pytest.mark.parametrize("signature", chosen, ids=[s.id for s in chosen])


# --- the catalogue as a whole -----------------------------------------------------------------------


def test_importing_the_catalogue_loads_no_class():
    code = (
        "import sys, check_failed_run.catalogue; "
        "print(','.join(sorted(m for m in sys.modules if m.startswith('check_failed_run.catalogue'))))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert shown == "check_failed_run.catalogue"


def test_ids_are_unique():
    assert len(catalogue.by_id()) == len(SIGNATURES)


def test_size():
    assert len(SIGNATURES) >= 150


def test_every_class_is_described():
    info = catalogue.class_info()
    assert tuple(info) == CLASSES
    for name, entry in info.items():
        assert entry.id == name
        assert entry.title and entry.is_ and entry.is_not and entry.when and entry.looked_for
        assert entry.kinds and entry.procedure and entry.fixes
        assert entry.severity in ("critical", "significant")


def test_every_class_has_a_signature():
    # divergence and a wrong evaluation are seen in the metrics, so they may do without lines
    assert {s.cls for s in SIGNATURES if s.cls} >= set(CLASSES) - {"optimization-divergence", "evaluation-mismatch"}


def test_every_mark_has_a_signature():
    assert {s.marks for s in SIGNATURES if s.marks} == set(Mark)


def test_exception_rules():
    rules = catalogue.exception_rules()
    ids = [r.id for r in rules]
    assert len(set(ids)) == len(ids)
    for rule in rules:
        assert re.fullmatch(r"exception/[a-z0-9]+(-[a-z0-9]+)*", rule.id), rule.id
        assert rule.cls in CLASSES
        assert rule.means and rule.kind
        for pattern in (rule.message, rule.frames):
            if pattern is not None:
                assert not nested_repeats(pattern), rule.id


# --- one signature ----------------------------------------------------------------------------------


@every()
def test_id_and_class(signature):
    group, _, name = signature.id.partition("/")
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name), signature.id
    if signature.role in GROUPS_WITHOUT_CLASS:
        assert group == GROUPS_WITHOUT_CLASS[signature.role]
        assert signature.cls == ""
    else:
        assert group == signature.cls
        assert group in CLASSES
    assert (signature.marks is not None) == (signature.role is Role.MARKER)
    assert signature.marks is None or isinstance(signature.marks, Mark)
    assert signature.specificity in (1, 2, 3)


@every()
def test_texts_are_filled(signature):
    assert signature.kind and signature.prints and signature.means
    assert len(signature.rejects) >= 2
    assert all(reject.why for reject in signature.rejects)
    if signature.role is Role.CAUSE:
        assert 1 <= len(signature.fixes) <= 4


@every()
def test_matches(signature):
    assert signature.matches
    for line in signature.matches:
        assert signature.match(line), line


@every()
def test_every_match_holds_a_cue(signature):
    for line in signature.matches:
        data = line.encode()
        if signature.ignore_case:
            assert any(cue.lower().encode() in data.lower() for cue in signature.cues), line
        else:
            assert any(cue.encode() in data for cue in signature.cues), line


@every()
def test_rejects(signature):
    for reject in signature.rejects:
        assert not signature.match(reject.line), reject


@every()
def test_cues(signature):
    assert signature.cues
    for cue in signature.cues:
        assert len(cue) >= 4, cue
        assert cue.isascii() and not set(cue) & set('"\\\x1b\n\r\t'), cue
        assert cue.strip().lower() not in COMMON_WORDS, cue


@every()
def test_named_groups(signature):
    # a pattern can't name two groups alike: path2 is another place of path
    assert {name.rstrip("23456789") for name in signature._compiled.groupindex} <= GROUPS


@every()
def test_pattern_is_linear(signature):
    for pattern in (signature.pattern, signature.unless):
        if pattern is not None:
            assert not nested_repeats(pattern), pattern
            assert not re.search(pattern, ""), pattern


@every()
def test_hostile_lines_are_quick(signature):
    for name, line in HOSTILE.items():
        best = min(timed(signature, line) for _ in range(3))
        assert best < 0.25, (name, best)  # quadratic patterns need seconds here, linear ones a few milliseconds


@every()
def test_fix_templates(signature):
    known = RUN_VALUES | set(signature._compiled.groupindex)
    for fix in signature.fixes:
        assert 0 <= fix.gain <= 1 and 0 <= fix.confidence <= 1
        for text in (fix.action, fix.impact, fix.validate, fix.command or ""):
            assert text.count("[[") == text.count("]]"), text
            # shared fixes may name a group that only some of their signatures have, where it is dropped otherwise
            optional = "".join(re.findall(r"\[\[.*?\]\]", text))
            required = re.sub(r"\[\[.*?\]\]", "", text)
            assert fields(required) <= known, text
            assert fields(optional) <= known | GROUPS, text


@every()
def test_outranks_name_something(signature):
    rules = {rule.id for rule in catalogue.exception_rules()}
    for target in signature.outranks:
        if target == "exception/" or target in rules:
            continue
        if target.endswith("/"):
            assert target[:-1] in CLASSES, target
        else:
            assert target in catalogue.by_id(), target


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("Saving model checkpoint to out/checkpoint-180", "out/checkpoint-180"),
        ("saving checkpoint at iteration    1000 to /gpfs/ck/g7b in torch_dist format", "/gpfs/ck/g7b"),
        ("  successfully saved checkpoint at iteration    500 to ckpt/bert24", "ckpt/bert24"),
        ("Epoch 3, global step 400: 'val_acc' reached 0.91 (best 0.91), saving model to '/runs/3/epoch=3.ckpt' as top 1", "/runs/3/epoch=3.ckpt"),
        ("[Torch] Saved ckpt/global_step10/mp_rank_00_model_states.pt.", "ckpt/global_step10/mp_rank_00_model_states.pt"),
        ("Finished saving checkpoint (finalized tmp dir) to `/data/runs/checkpoints/200`.", "/data/runs/checkpoints/200"),
        ("checkpoint /ckpt/vit_l/step_5000.pt saved", "/ckpt/vit_l/step_5000.pt"),
        ("saved runs/churn/epoch_002.pt", "runs/churn/epoch_002.pt"),
        ("Saving checkpoint at 3 epochs", None),
    ],
)
def test_path_of_a_saved_checkpoint(line, path):
    found = [s.match(line) for s in SIGNATURES if s.marks is Mark.CHECKPOINT_SAVED]
    assert {m["path"] for m in found if m} == {path}


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("loading checkpoint from /mnt/ckpt at iteration 4000", "/mnt/ckpt"),
        ("Restored all states from the checkpoint at /runs/3/last.ckpt", "/runs/3/last.ckpt"),
        ("Restoring states from the checkpoint path at epoch=3.ckpt", "epoch=3.ckpt"),
        ("Loaded checkpoint 'output/train/vits/last.pth.tar' (epoch 33)", "output/train/vits/last.pth.tar"),
        ("Loading the checkpoint from ./outputs/checkpoint/step-3000.", "./outputs/checkpoint/step-3000"),
    ],
)
def test_path_of_a_loaded_checkpoint(line, path):
    found = [s.match(line) for s in SIGNATURES if s.marks is Mark.CHECKPOINT_LOADED]
    assert {m["path"] for m in found if m} == {path}


# --- the checks themselves --------------------------------------------------------------------------


def fields(template: str) -> set[str]:
    """Names in braces; shell text such as ${X} or $(...) and JSON braces are left alone."""
    return set(re.findall(r"(?<!\$)\{([a-z_]+)\}", template))


def timed(signature, line: str) -> float:
    """Seconds that one match takes."""
    start = time.process_time()
    signature.match(line)
    return time.process_time() - start


def nested_repeats(pattern: str) -> bool:
    """Whether an unbounded repeat holds another one, as in ``(a+)+``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _nested(parser.parse(pattern), inside=False)


def _nested(parsed, inside: bool) -> bool:
    for operator, argument in parsed:
        name = str(operator)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            _, most, body = argument
            unbounded = most == parser.MAXREPEAT
            if unbounded and inside:
                return True
            if _nested(body, inside or unbounded):
                return True
        elif name == "SUBPATTERN":
            if _nested(argument[-1], inside):
                return True
        elif name == "BRANCH":
            if any(_nested(branch, inside) for branch in argument[1]):
                return True
        elif name in ("ASSERT", "ASSERT_NOT"):
            if _nested(argument[1], inside):
                return True
        elif name == "ATOMIC_GROUP" and _nested(argument, inside):
            return True
    return False


@pytest.mark.parametrize("pattern", [r"(a+)+", r"(\w+\s*)*x", r"(?:[^,]*,)+", r"((?:ab*)c)*"])
def test_nested_repeats_are_found(pattern):
    assert nested_repeats(pattern)


@pytest.mark.parametrize("pattern", [r"a+b+", r"(?:[^,]{1,40},){1,9}", r"\w+(?P<rank>\d+)?"])
def test_plain_repeats_pass(pattern):
    assert not nested_repeats(pattern)


def expansions(sequence, limit: int = 200) -> list[str]:
    """Texts that a parsed pattern can begin to match; a NUL stands for whatever is not literal."""
    found = [""]
    for op, argument in sequence:
        name = str(op)
        if name == "LITERAL":
            following = [chr(argument)]
        elif name == "SUBPATTERN":
            following = expansions(argument[3], limit)
        elif name == "BRANCH":
            following = [text for branch in argument[1] for text in expansions(branch, limit)]
        elif name == "IN" and len(argument) <= 4 and all(str(o) == "LITERAL" for o, _ in argument):
            following = [chr(a) for _, a in argument]
        elif name in ("MAX_REPEAT", "MIN_REPEAT") and argument[:2] == (0, 1):
            following = ["", *expansions(argument[2], limit)]
        elif name in ("AT", "ASSERT", "ASSERT_NOT"):
            following = [""]
        else:
            following = ["\0"]
        found = [a + b for a in found for b in following][:limit]
    return found


# branches whose literal parts are split by digits or classes; their examples show that a cue stands there
SPLIT_BRANCHES = frozenset({"nan-inf/nan-iterations", "oom/host-memory-use", "io-checkpoint/deepspeed-shards-missing", "process-crash/signal-exit", "cloud-permissions-quota/quota"})


@every()
def test_every_branch_of_the_pattern_has_a_cue(signature):
    """A branch without a cue is never tried."""
    parser = importlib.import_module("re._parser")
    items = list(parser.parse(signature.pattern))
    branches = items[0][1][1] if len(items) == 1 and str(items[0][0]) == "BRANCH" else [items]
    fold = str.lower if signature.ignore_case else str
    for branch in branches:
        texts = expansions(branch)
        if signature.id not in SPLIT_BRANCHES and any(len(run) >= 6 for text in texts for run in text.split("\0")):
            assert any(fold(cue) in fold(text) for text in texts for cue in signature.cues), texts[0].replace("\0", "...")
