"""A user's own signatures: accepted by the same rules as the catalogue's, refused with the reason."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from check_failed_run.catalogue.user import SignatureError, read_signatures

GOOD = r"""
[[signature]]
id = "user/license-server"
class = "config-error"
kind = "licence server not reached"
cues = ["cannot reach licence server"]
pattern = 'cannot reach licence server (?P<host>\S+)'
prints = "our launcher"
means = "The training container has no route to the licence server."
matches = ["ERROR cannot reach licence server lic-01"]
fatal = true
specificity = 3
rejects = [{line = "licence server lic-01 reached", why = "it works"}, {line = "retrying licence server", why = "not the end"}]

[[signature.fixes]]
action = "Ask for a route to {host}"
change = "permission"
impact = "the container starts"
validate = "the first 50 steps are logged"
"""


def write(tmp_path, text: str):
    path = tmp_path / "my.toml"
    path.write_text(text)
    return path


def test_a_good_file(tmp_path):
    (signature,) = read_signatures(write(tmp_path, GOOD))
    assert signature.match("x cannot reach licence server lic-02").group("host") == "lic-02"
    assert signature.cls == "config-error" and signature.fixes[0].action.startswith("Ask")


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('kind = "licence server not reached"\n', "", "kind must be"),
        ('class = "config-error"', 'class = "magic"', "class must be one of"),
        ("user/license-server", "oom/license-server", "a group of your own"),
        ('matches = ["ERROR cannot', 'matches = ["ERROR could not', "does not match its own example"),
        ('cues = ["cannot reach licence server"]', 'cues = ["licence servers"]', "no cue stands in"),
        ('cues = ["cannot reach licence server"]', 'cues = ["lic"]', "at least 4"),
        ('line = "licence server lic-01 reached"', 'line = "cannot reach licence server x"', "which it must not"),
        (r"(?P<host>\S+)'", r"(?P<host>\S+)(?=x)'", "RE2"),
        ("fatal = true", "fatal = true\nfatl = 1", "unknown field 'fatl'"),
        ("[[signature]]", "[[signatures]]", "[[signature]] tables"),
        ("specificity = 3", "specificity = 9", "specificity must be"),
        ('change = "permission"', 'change = "magic"', "change must be one of"),
        ("fatal = true", "fatal = ", "no valid TOML"),
    ],
)
def test_refused_with_the_reason(tmp_path, old, new, why):
    assert old in GOOD
    with pytest.raises(SignatureError, match=None) as error:
        read_signatures(write(tmp_path, GOOD.replace(old, new, 1)))
    assert why in str(error.value)


def test_a_pattern_that_would_take_for_ever_elsewhere_is_linear(tmp_path):
    text = GOOD.replace(r"'cannot reach licence server (?P<host>\S+)'", r"'cannot reach licence server (?P<host>(?:a+)+)$'")
    text = text.replace("licence server lic-01\"]", 'licence server aaa"]')
    (signature,) = read_signatures(write(tmp_path, text))
    assert signature.match("cannot reach licence server " + "a" * 50_000 + "b") is None


def run(tmp_path, *args):
    command = [sys.executable, "-m", "check_failed_run.cli", *map(str, args), "--out-dir", str(tmp_path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_the_command_uses_them(tmp_path):
    (tmp_path / "train.log").write_text("step 1 loss 2.0\nERROR cannot reach licence server lic-07\n")
    done = run(tmp_path, tmp_path / "train.log", "--signatures", write(tmp_path, GOOD))
    report = json.loads((tmp_path / "check-failed-run.json").read_text())
    assert done.returncode == 0 and report["primary_cause"] == "config-error", done.stderr
    assert "Ask for a route to lic-07" in [f["action"] for f in report["fixes"]]


def test_a_bad_file_is_misuse(tmp_path):
    (tmp_path / "train.log").write_text("step 1 loss 2.0\n")
    for path in (tmp_path / "none.toml", write(tmp_path, "x = 1")):
        done = run(tmp_path, tmp_path / "train.log", "--signatures", path)
        assert done.returncode == 2 and "--signatures" in done.stderr and "Traceback" not in done.stderr
