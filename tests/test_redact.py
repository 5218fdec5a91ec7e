"""Secrets out, everything else in. The secrets here are made up and put together at run time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from check_failed_run.report.redact import clean, redact_text, redact_value

A40 = "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7b"
HEX40 = "0123456789abcdef0123456789abcdef01234567"
HEX32 = HEX40[:32]

SECRETS = [
    ("aws-key", "key " + "AKIA" + "IOSFODNN7EXAMPLX", "IOSFODNN7"),
    ("aws-secret", "aws_secret_access_key = " + A40, A40),
    ("gcp-key", "url key " + "AIza" + "SyA1234567890abcdefghijklmnopqrstuv", "SyA123"),
    ("gcp-token", "ya29" + ".a0AfH6SMBx1234567890abcdef", "a0AfH6"),
    ("azure-key", "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=" + A40 + A40 + "==;EndpointSuffix=y", A40),
    ("signed-url", "GET https://a.blob.core.windows.net/c/f?sv=2022&sig=" + "abc%2Fdef%3D12345 failed", "abc%2F"),
    ("signed-url", "https://storage.googleapis.com/b/o?X-Goog-Algorithm=RSA&X-Goog-Signature=" + HEX40, HEX40),
    ("github-token", "using ghp" + "_" + A40[:36], A40[:36]),
    ("github-token", "github" + "_pat_" + A40[:22] + "_x", A40[:22]),
    ("gitlab-token", "glpat" + "-" + A40[:20], A40[:20]),
    ("huggingface-token", "Token hf" + "_" + "AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh is invalid", "AbCdEf"),
    ("wandb-key", "wandb: Appending key for api.wandb.ai " + HEX40, HEX40),
    ("openai-key", "sk" + "-proj-" + A40, A40),
    ("anthropic-key", "sk" + "-ant-api03-" + A40, A40),
    ("slack-token", "xoxb" + "-123456789012-abcdefghij", "123456789012-ab"),
    ("slack-webhook", "https://hooks.slack.com/services/" + "T000/B000/abcdefgh123", "B000"),
    ("npm-token", "npm" + "_" + A40[:36], A40[:36]),
    ("pypi-token", "pypi" + "-" + A40 + A40, A40),
    ("stripe-key", "sk" + "_live_" + A40[:24], A40[:24]),
    ("twilio-key", "AC" + HEX32, HEX32),
    ("sendgrid-key", "SG" + "." + A40[:22] + "." + A40 + "abc", A40[:22]),
    ("telegram-token", "bot 123456789" + ":AA" + A40[:33], A40[:33]),
    ("jwt", "eyJ" + "hbGciOiJIUzI1NiJ9.eyJ" + "zdWIiOiIxMjM0In0.abcDEF_123", "hbGci"),
    ("private-key", "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEabc\n-----END RSA " + "PRIVATE KEY----- after", "MIIEabc"),
    ("password", "postgresql://mlflow:" + "hunter2@db:5432/x", "hunter2"),
    ("password", "redis://:" + "hunter2@db:6379", "hunter2"),
    ("authorization", "Authorization: Bearer " + A40, A40),
    ("authorization", "{'Authorization': 'Basic " + "dXNlcjpwYXNz'}", "dXNlcj"),
    ("password", "password=" + "hunter22 next", "hunter22"),
    ("password", '"password": "' + 'hunter2 with spaces"', "hunter2"),
    ("password", "MYSQL_PASSWORD=" + "hunter22", "hunter22"),
    ("token", "--hub_token " + "secretvalue1", "secretvalue1"),
    ("token", "HF_TOKEN=" + "abc123def456", "abc123"),
    ("api-key", "WANDB_API_KEY=" + "local-abc123def456", "abc123"),
    ("api-key", "api_key: '" + "abcd1234abcd'", "abcd1234"),
    ("secret", "client_secret=" + "abcd1234abcd", "abcd1234"),
    ("netrc", "machine api.wandb.ai login user password " + "hunter22", "hunter22"),
    ("password", "curl -u user:" + "hunter22 https://x", "hunter22"),
]

INNOCENT = [
    "commit 0123456789abcdef0123456789abcdef01234567",
    "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "run 123e4567-e89b-12d3-a456-426614174000",
    "step 1433 loss=nan lr=3e-4",
    "RuntimeError: shape '[2, 3]' is invalid for input of size 12",
    "num_tokens: 1048576, max_tokens=512 tokens_per_second=12345.6",
    "Using pad_token, but it is not set yet. pad_token: <|endoftext|>",
    "eos_token='<|im_end_of_text|>' bos_token='<s>'",
    "KeyError: 'token_type_ids'",
    "SyntaxError: unexpected token: identifier",
    "ValueError: Invalid API key",
    "password: incorrect",
    "secret=None api_key=null token=$HF_TOKEN",
    "--token_dropout 0.1 --keys input_ids",
    "https://github.com/pytorch/pytorch/issues/12345?x=1#top",
    "gs://bucket/path/checkpoint-1000/model.safetensors",
    "tcp://10.0.0.1:29500",
    "s3://bucket:prefix/a@b",
    "[rank3]: RuntimeError: NCCL communicator was aborted on rank 3.",
    "train.py:88: in __getitem__",
    "wandb: Run data is saved locally in /x/wandb/run-20260101_101010-abcd1234",
    "module 'tokenizers' has no attribute 'Tokenizer'",
    "unauthorized: authentication failed",
    "model.layers.0.self_attn.k_proj.weight sk-learn pipeline",
    "hf_transfer and hf_hub_download_with_retries_and_more",
    "size mismatch for key: copying a param with shape torch.Size([32000, 4096])",
    "Missing key(s) in state_dict: \"lm_head.weight\"",
]


@pytest.mark.parametrize(("kind", "text", "secret"), SECRETS)
def test_secrets_go(kind, text, secret):
    out = redact_text(text)
    assert secret not in out
    assert "[redacted:" in out
    if kind not in ("openai-key",):
        assert f"[redacted:{kind}]" in out, out
    assert redact_text(out) == out


@pytest.mark.parametrize("text", INNOCENT)
def test_the_rest_stays(text):
    assert redact_text(text) == text


def test_the_surroundings_stay():
    assert redact_text("psql postgresql://u:" + "hunter2@db:5432/x failed") == "psql postgresql://[redacted:password]@db:5432/x failed"


def test_hostile_characters_go():
    assert clean("a\x1b[31mred\x1b[0m\x1b]0;title\x07b") == "aredb"
    assert clean("a\u202eb\u2066c\u200bd\x00e\x9b31mf\x7f") == "abcdef"
    assert clean("tab\tnew\nline ünï 漢字 é") == "tab\tnew\nline ünï 漢字 é"
    assert clean("\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\") == "click"
    assert clean("\ud800x") == "x"


def test_a_split_secret_is_seen_after_cleaning():
    assert "hunter22" not in redact_text("pass\x1b[0mword=hun\u200bter22")


def test_structures():
    out = redact_value({"env": {"WANDB_API_KEY": "short1", "steps": 3, "token": None}, "argv": ["--password", "x"], "t": ("password=" + "hunter22",)})
    assert out["env"]["WANDB_API_KEY"] == "[redacted:api-key]" and out["env"]["steps"] == 3 and out["env"]["token"] is None
    assert "hunter22" not in out["t"][0]


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_idempotent_and_clean(text):
    once = redact_text(text)
    assert redact_text(once) == once and clean(once) == once


@pytest.mark.parametrize("piece", ["password=", "a-", "token_", "://a:", "eyJ", "-----BEGIN PRIVATE KEY-----", "sk-a", "\x1b]", "aws secret ", "api_key ", "machine a login b ", "a.b_", "key: ", "curl -u "])
def test_linear_time(piece):
    text = piece * (40_000 // len(piece))
    start = time.perf_counter()
    redact_text(text)
    assert time.perf_counter() - start < 2.0
