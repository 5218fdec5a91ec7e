"""Secrets and hostile characters out of the report, on the object itself, so that no format can forget it.

The table below is this package's own: every pattern is linear in time, works on one string without context of a file, and names a kind.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

from check_failed_run.report.model import Report

# CSI, OSC (also unfinished), other two-byte escapes.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]|\x9b[0-?]*[ -/]*[@-~]")
# C0 (but tab and newline), DEL, C1, zero-width, bidi controls and isolates, line separators, BOM, tags, lone surrogates.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)

_QUOTE = r"[\"'\\]{0,3}"


def _whole(kind: str) -> Callable[[re.Match[str]], str]:
    return lambda found: f"[redacted:{kind}]"


def _keep(kind: str) -> Callable[[re.Match[str]], str]:
    """Keep group 1 (the name, the scheme), redact the rest."""
    return lambda found: f"{found.group(1)}[redacted:{kind}]"


# Words that stand where a secret would and are none: empty, masked, types, variables, code.
_NO_SECRET = re.compile(
    r"^(?:\*+|x{3,}|\.{3,}|<[^>]*>|\$\{?\w+\}?|%\w+%?|\{+[\w.]*\}*|none|null|nil|true|false|undefined|unset|required|missing|invalid|redacted|"
    r"\[redacted.*|os\.\w+.*|self\.\w+.*|args\.\w+.*|config\.\w+.*|str|int|bool|optional.*|yes|no|expired|not|is|was|and|or|for|must|"
    r"-?\d{1,7}(?:\.\d+)?)$",
    re.IGNORECASE,
)


def _assignment(found: re.Match[str]) -> str:
    value = found.group("value")
    if _NO_SECRET.match(value.strip("\"'\\,;)]}")) or len(value) < 4:
        return found.group(0)
    return f"{found.group('name')}[redacted:{_kind(found.group('name'))}]"


def _kind(name: str) -> str:
    lowered = name.lower()
    if "pass" in lowered or "pwd" in lowered:
        return "password"
    if "key" in lowered:
        return "api-key"
    return "token" if "token" in lowered else "secret"


_RULES: tuple[tuple[str, Callable[[re.Match[str]], str], int], ...] = (
    (r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----(?:[^-]*(?:-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----)?)", _whole("private-key"), 0),
    # URLs: user:password@
    (r"(\b[a-z][a-z0-9+.-]{1,20}://)[^\s/@:'\"]{0,256}:[^\s/@'\"]{1,512}(?=@)", _keep("password"), re.I),
    # signed URLs and query keys
    (
        r"([?&;](?:sig|X-Goog-Signature|X-Amz-Signature|X-Amz-Security-Token|X-Goog-Credential|X-Amz-Credential|Signature|access_token|api[_-]?key|key|token|code)=)[^&\s\"'<>]{6,}",
        _keep("signed-url"),
        re.I,
    ),
    (r"(\b(?:AccountKey|SharedAccessKey|SharedAccessSignature)=)[^;\s\"']{8,}", _keep("azure-key"), re.I),
    # headers
    (r"(\bAuthorization" + _QUOTE + r"\s{0,4}[:=]\s{0,4}" + _QUOTE + r"(?:Bearer|Basic|Token|Digest|AWS4-HMAC-SHA256|ApiKey)?\s{0,4})[^\s\"',\\]{6,}", _keep("authorization"), re.I),
    (r"(\bBearer\s{1,4})(?=[\w.~+/=-]{0,200}\d)[\w.~+/=-]{16,}", _keep("authorization"), re.I),
    (r"(\b(?:X-Api-Key|X-Auth-Token|Private-Token|Set-Cookie|Cookie)" + _QUOTE + r"\s{0,4}[:=]\s{0,4}" + _QUOTE + r")[^\s\"',\\]{6,}", _keep("authorization"), re.I),
    # tokens that name themselves
    (r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b", _whole("aws-key"), 0),
    (r"\bAIza[\w-]{35}(?![\w-])", _whole("gcp-key"), 0),
    (r"\bya29\.[\w-]{20,}", _whole("gcp-token"), 0),
    (r"\bGOCSPX-[\w-]{20,}", _whole("gcp-secret"), 0),
    (r"\bGOOG[0-9A-Z]{16,60}\b", _whole("gcp-key"), 0),
    (r"\b1//0[\w-]{30,}", _whole("gcp-token"), 0),
    (r"\bgh[pousr]_[A-Za-z0-9]{30,255}\b", _whole("github-token"), 0),
    (r"\bgithub_pat_\w{22,255}\b", _whole("github-token"), 0),
    (r"\bgl(?:pat|dt|ptt|rt|cbt|soat|ft|imt|agent|oas)-[\w-]{18,255}", _whole("gitlab-token"), 0),
    (r"\b(?:hf|api_org)_[A-Za-z]{30,50}\b", _whole("huggingface-token"), 0),
    (r"\bhf_(?=[A-Za-z]{0,50}\d)[A-Za-z0-9]{30,50}\b", _whole("huggingface-token"), 0),
    (r"\bwandb_v1_\w{20,}", _whole("wandb-key"), 0),
    (r"((?:wandb|weights ?& ?biases|api[_-]?key)[^\n]{0,60}?(?<![0-9a-f]))[0-9a-f]{40}(?![0-9a-f])", _keep("wandb-key"), re.I),
    (r"\bsk-ant-[\w-]{20,}", _whole("anthropic-key"), 0),
    (r"\bsk-(?:proj-|svcacct-|admin-|or-v1-)?(?=[\w-]{0,200}\d)[\w-]{20,}", _whole("openai-key"), 0),
    (r"\bxox[abeoprs]-[\w-]{10,}|\bxapp-\d-[\w-]{10,}", _whole("slack-token"), 0),
    (r"(\bhooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/)[\w/-]{10,}", _keep("slack-webhook"), 0),
    (r"(\bdiscord(?:app)?\.com/api/webhooks/)[\w/-]{10,}", _keep("discord-webhook"), 0),
    (r"\bnpm_[A-Za-z0-9]{36}\b", _whole("npm-token"), 0),
    (r"\bpypi-[\w-]{50,}", _whole("pypi-token"), 0),
    (r"\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}\b|\bwhsec_[A-Za-z0-9+/=]{20,}", _whole("stripe-key"), 0),
    (r"((?:twilio|account[_ -]?sid|auth[_ -]?token)[^\n]{0,40}?)\b(?:AC|SK)[0-9a-f]{32}\b", _keep("twilio-key"), re.I),
    (r"\b(?:AC|SK)[0-9a-f]{32}\b", _whole("twilio-key"), 0),
    (r"\bSG\.[\w-]{16,32}\.[\w-]{32,64}", _whole("sendgrid-key"), 0),
    (r"(?<![\d:])\d{8,10}:AA[\w-]{32,34}(?![\w-])", _whole("telegram-token"), 0),
    (r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*", _whole("jwt"), 0),
    (r"\bdapi[0-9a-f]{32}\b", _whole("databricks-token"), 0),
    (r"\bhv[sb]\.[\w-]{24,}", _whole("vault-token"), 0),
    (r"\bdckr_pat_[\w-]{20,}|\bdop_v1_[0-9a-f]{64}\b|\bAGE-SECRET-KEY-1[0-9A-Z]{50,}", _whole("token"), 0),
    (r"\bnvapi-[\w-]{30,}", _whole("nvidia-key"), 0),
    (r"\br8_[A-Za-z0-9]{30,}\b|\bgsk_[A-Za-z0-9]{40,}\b", _whole("api-key"), 0),
    # AWS secret keys have no form of their own: only after their name
    (r"(aws.{0,20}?secret.{0,20}?[:=]\s{0,4}" + _QUOTE + r")[A-Za-z0-9/+=]{40}(?![A-Za-z0-9/+=])", _keep("aws-secret"), re.I),
    (r"(\bmachine\s{1,4}\S{1,200}\s{1,4}login\s{1,4}\S{1,200}\s{1,4}password\s{1,4})\S+", _keep("netrc"), re.I),
    (r"(\bcurl\b[^\n|;]{0,200}?\s(?:-u|--user)[ =]" + _QUOTE + r"[^\s:'\"]{1,100}:)[^\s'\"]{2,}", _keep("password"), 0),
    # --password VALUE
    (
        r"(?P<name>(?<![\w-])--?(?:[\w-]{0,40}[-_])?(?:password|passwd|passphrase|secret|api[-_]?key|access[-_]?key|secret[-_]?key|(?:hf|hub|auth|access|api|wandb|github|gitlab|bearer|refresh|use[-_]auth)[-_]?token|token)(?:=|\s{1,4})"
        + _QUOTE
        + r")(?P<value>(?!-)[^\s\"',;]{4,})",
        _assignment,
        re.I,
    ),
)
# name = value, "name": "value", NAME=value. The name must end in a word for a secret: tokens=512 and num_tokens: 4 are not.
_ASSIGN = re.compile(
    r"(?P<name>(?<![A-Za-z0-9])(?:[A-Za-z0-9]{1,30}[_.-]){0,6}(?:password|passwd|passphrase|pwd|secret|client_?secret|secret_?key|secret_?access_?key|"
    r"api_?key|apikey|access_?key|private_?key|account_?key|encryption_?key|signing_?key|auth_?key|token|auth_?token|access_?token|refresh_?token|credentials?)"
    r"[\"'\\]{0,3}\s{0,3}(?:=|:(?!:))\s{0,3})(?P<quote>\\?[\"'])?(?P<value>(?(quote)[^\"'\\\n]{4,}|[^\s\"',;(){}\[\]]{6,}))",
    re.IGNORECASE,
)
_COMPILED = tuple((re.compile(pattern, flags), action) for pattern, action, flags in _RULES)
_SENSITIVE_KEY = re.compile(r"(?:^|[_.\-])(?:password|passwd|passphrase|secret|api_?key|access_?key|secret_?key|private_?key|auth_?token|access_?token|token)$", re.IGNORECASE)


def _named_assignment(found: re.Match[str]) -> str:
    value, name = found.group("value"), found.group("name")
    quote = found.group("quote") or ""
    if _NO_SECRET.match(value) or "[redacted" in value or found.string[found.start() :].startswith("[redacted:"):
        return found.group(0)
    plain = name.rstrip(" =:\"'\\").lower()
    # "unexpected token: <word>", "pad token: <pad>": a lone "token" in prose or a tokenizer's, unless the value looks made by a machine.
    if re.search(r"token$|credentials?$", plain) and not quote and not re.search(r"\d", value):
        return found.group(0)
    if re.search(r"(?:^|[_.-])(?:pad|eos|bos|unk|mask|sep|cls|stop|start|end|image|special|next|additional|unexpected)[_-]?token$", plain):
        return found.group(0)
    if not quote and re.search(r"\s{1,3}$", name) and name.rstrip().endswith(":") and not re.search(r"[\d!@#$%^&*+/=_-]", value):
        return found.group(0)  # "Password: incorrect" is a sentence
    return f"{name}{quote}[redacted:{_kind(plain)}]"


# Cheap test first: most strings hold none of these.
_HINT = re.compile(
    r"key|secret|token|pass|pwd|credential|auth|bearer|cookie|sig|://|AKIA|ASIA|ABIA|ACCA|AIza|ya29|GOCSPX|GOOG|1//0|gh[pousr]_|github_pat|gl\w{2,5}-|hf_|wandb|sk[-_]|"
    r"xox|xapp|hooks\.|webhooks|npm_|pypi-|[rp]k_|whsec|twilio|\bAC[0-9a-f]|\bSK[0-9a-f]|SG\.|:AA|eyJ|dapi|hv[sb]\.|dckr|dop_v1|AGE-|nvapi|r8_|gsk_|aws|machine|curl|PRIVATE",
    re.IGNORECASE,
)


def clean(text: str) -> str:
    """``text`` without terminal escapes, control, bidi and zero-width characters; tab and newline stay."""
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub("", _ESCAPES.sub("", text))


def redact_text(text: str) -> str:
    """``text`` without secrets and hostile characters. Idempotent, linear in the length."""
    text = clean(text)
    if not _HINT.search(text):
        return text
    for pattern, action in _COMPILED:
        text = pattern.sub(action, text)
    return _ASSIGN.sub(_named_assignment, text)


def redact_value(value: Any, key: str = "") -> Any:
    """The same structure with every string redacted (keys too); new containers, nothing is changed in place."""
    if isinstance(value, str):
        if key and _SENSITIVE_KEY.search(key) and value and not _NO_SECRET.match(value) and not value.startswith("[redacted:"):
            return f"[redacted:{_kind(key)}]"
        return redact_text(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: redact_value(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return type(value)(**changes)
    if isinstance(value, dict):
        return {redact_text(k) if isinstance(k, str) else k: redact_value(v, k if isinstance(k, str) else "") for k, v in value.items()}
    if isinstance(value, list):
        return [redact_value(item, key) for item in value]
    if isinstance(value, tuple):
        return tuple(redact_value(item, key) for item in value)
    return value


def redact(report: Report) -> Report:
    """A copy of ``report`` that may be shown to anybody who may see the run."""
    return redact_value(report)
