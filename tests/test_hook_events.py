"""What the hook takes for an event, and what it does not."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failure_hook.events import NotAnEvent, parse

ENTRY = {
    "logName": "projects/acme/logs/aiplatform.googleapis.com%2Fpipeline_job_events",
    "resource": {"type": "aiplatform.googleapis.com/PipelineJob", "labels": {"resource_container": "projects/123", "location": "us-central1", "pipeline_job_id": "ctr-20261101"}},
    "jsonPayload": {"pipelineName": "ctr", "state": "PIPELINE_STATE_FAILED"},
    "labels": {"team": "ads"},
    "severity": "ERROR",
}
BUILD = {"id": "b-1", "projectId": "acme", "status": "FAILURE", "name": "projects/1/locations/europe-west1/builds/b-1", "steps": [{"name": "python", "status": "FAILURE", "exitCode": 1}], "logsBucket": "gs://logs"}


def wrapped(data, **more) -> bytes:
    encoded = base64.b64encode(json.dumps(data).encode()).decode()
    return json.dumps({"message": {"data": encoded, "messageId": "m1", "attributes": {}, **more}, "subscription": "projects/p/subscriptions/s"}).encode()


def test_a_failed_pipeline():
    event = parse({}, wrapped(ENTRY))
    assert (event.kind, event.name, event.failed) == ("pipeline", "projects/123/locations/us-central1/pipelineJobs/ctr-20261101", True)
    assert dict(event.labels) == {"team": "ads"} and event.message_id == "m1"


def test_unwrapped_and_cloud_event_and_nested_state():
    bare = parse({"Content-Type": "application/json"}, json.dumps(ENTRY).encode())
    binary = parse({"ce-id": "1", "ce-source": "//pubsub", "ce-specversion": "1.0", "ce-type": "google.cloud.pubsub.topic.v1.messagePublished", "content-type": "application/json"}, wrapped(ENTRY))
    structured = parse(
        {"content-type": "application/cloudevents+json"},
        json.dumps({"specversion": "1.0", "id": "1", "source": "//pubsub", "type": "google.cloud.pubsub.topic.v1.messagePublished", "data": json.loads(wrapped(ENTRY))}).encode(),
    )
    nested = parse({}, wrapped({**ENTRY, "jsonPayload": {"payload": {"state": "PIPELINE_STATE_CANCELLED"}}}))
    assert bare.key == binary.key == structured.key and nested.state == "PIPELINE_STATE_CANCELLED" and nested.failed


def test_success_and_progress_need_no_message():
    for state in ("PIPELINE_STATE_SUCCEEDED", "PIPELINE_STATE_RUNNING"):
        assert not parse({}, wrapped({**ENTRY, "jsonPayload": {"state": state}})).failed
    assert not parse({}, wrapped({**BUILD, "status": "SUCCESS"})).failed


def test_a_failed_build():
    event = parse({}, wrapped(BUILD, attributes={"buildId": "b-1", "status": "FAILURE"}))
    assert (event.kind, event.name, event.failed) == ("build", "projects/acme/locations/europe-west1/builds/b-1", True)


BAD = {
    "empty": b"",
    "no JSON": b"<xml/>",
    "a list": b"[1, 2]",
    "a number": b"7",
    "no message data": json.dumps({"message": {"attributes": {}}}).encode(),
    "broken base64": json.dumps({"message": {"data": "%%%"}}).encode(),
    "base64 of no JSON": json.dumps({"message": {"data": base64.b64encode(b"hello").decode()}}).encode(),
    "base64 of a list": json.dumps({"message": {"data": base64.b64encode(b"[]").decode()}}).encode(),
    "another resource": wrapped({**ENTRY, "resource": {"type": "gce_instance", "labels": {}}}),
    "a task event": wrapped({**ENTRY, "logName": "projects/acme/logs/aiplatform.googleapis.com%2Fpipeline_job_task_events"}),
    "no job id": wrapped({**ENTRY, "resource": {"type": "aiplatform.googleapis.com/PipelineJob", "labels": {"location": "r"}}}),
    "a path as job id": wrapped({**ENTRY, "resource": {"type": "aiplatform.googleapis.com/PipelineJob", "labels": {"location": "r", "pipeline_job_id": "../../x"}}}),
    "labels that are a list": wrapped({**ENTRY, "resource": {"type": "aiplatform.googleapis.com/PipelineJob", "labels": [1]}}),
    "no state": wrapped({**ENTRY, "jsonPayload": {}}),
    "too large": b'{"x": "' + b"a" * (2 << 20) + b'"}',
    "an unknown shape": wrapped({"hello": "world"}),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_event(name):
    with pytest.raises(NotAnEvent):
        parse({}, BAD[name])


json_values = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=20), lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(
    ["message", "data", "attributes", "resource", "labels", "type", "logName", "jsonPayload", "payload", "state", "id", "status", "steps", "projectId", "name", "location", "pipeline_job_id"]), inner, max_size=6), max_leaves=20)  # fmt: skip


@given(st.binary(max_size=200) | json_values.map(lambda v: json.dumps(v).encode()) | json_values.map(wrapped), st.dictionaries(st.sampled_from(["content-type", "ce-type", "ce-id", "ce-source", "ce-specversion"]), st.text(max_size=30), max_size=5))
def test_any_request_is_an_event_or_not_an_event(body, headers):
    try:
        event = parse(headers, body)
    except NotAnEvent:
        return
    assert event.kind in ("pipeline", "build") and event.name.startswith("projects/") and ".." not in event.name.split("/")
