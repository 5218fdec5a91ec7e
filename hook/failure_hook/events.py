"""What arrives: Pub/Sub push and CloudEvents, with Vertex AI pipeline events, and Cloud Build's own topic.

Nothing is trusted: any shape that is not one of these is :class:`NotAnEvent`, which will never succeed and is
acknowledged after it was logged.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_BODY = 1 << 20  # bytes; a log entry has at most 256 KiB, and Pub/Sub adds a third for base64

FAILED_PIPELINE = frozenset({"PIPELINE_STATE_FAILED", "PIPELINE_STATE_CANCELLED"})
FAILED_BUILD = frozenset({"FAILURE", "INTERNAL_ERROR", "TIMEOUT"})
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,200}")


class NotAnEvent(ValueError):
    """A request that holds no event that could ever be handled. The message says why."""


@dataclass(frozen=True, slots=True)
class Event:
    """One failure.

    Attributes:
        kind: "pipeline" or "build".
        name: resource name of the pipeline job or build.
        state: the final state, as the service spells it.
        failed: False for states that need no message (success, still running).
        labels: of the job, where the event carries them.
        message_id: Pub/Sub's id of this delivery, for the log.
    """

    kind: str
    name: str
    state: str
    failed: bool
    labels: tuple[tuple[str, str], ...] = ()
    message_id: str = ""
    raw: str = ""

    @property
    def key(self) -> str:
        """What makes two deliveries the same failure: the job and its final state."""
        return f"{self.name}#{self.state}"


def parse(headers: Mapping[str, str], body: bytes) -> Event:
    """The event of one request.

    Args:
        headers: HTTP headers, names in any case.
        body: the request's body.

    Raises:
        NotAnEvent: too large, no JSON, broken base64, an unknown shape or source.
    """
    if len(body) > MAX_BODY:
        raise NotAnEvent(f"the body is larger than {MAX_BODY} bytes")
    envelope, message_id = _unwrap(headers, body)
    data, attributes = envelope
    if "resource" in data and "logName" in data:
        return _pipeline_event(data, message_id)
    if "buildTriggerId" in data or ("steps" in data and "status" in data and "id" in data) or "buildId" in attributes:
        return _build_event(data, message_id)
    raise NotAnEvent("neither a log entry nor a build")


def _unwrap(headers: Mapping[str, str], body: bytes) -> tuple[tuple[dict[str, Any], dict[str, str]], str]:
    """((data, attributes), message id) of a wrapped push, a CloudEvent around one, or the bare data."""
    low = {str(k).lower(): str(v) for k, v in headers.items()}
    content = low.get("content-type", "")
    if "ce-type" in low or content.startswith("application/cloudevents"):
        from cloudevents.core.bindings.http import HTTPMessage, from_http_event
        from cloudevents.core.exceptions import CloudEventValidationError

        try:
            loaded = from_http_event(HTTPMessage(low, body)).get_data()
        except (CloudEventValidationError, ValueError, TypeError, AttributeError, KeyError) as error:
            raise NotAnEvent(f"no CloudEvent: {error}") from None
        if isinstance(loaded, bytes | str):
            loaded = _json(loaded if isinstance(loaded, bytes) else loaded.encode())
    else:
        loaded = _json(body)
    if not isinstance(loaded, dict):
        raise NotAnEvent("the body is no JSON object")
    message = loaded.get("message")
    if not isinstance(message, dict):
        return (loaded, {}), ""
    identity = str(message.get("messageId") or message.get("message_id") or "")
    attributes = {str(k): str(v) for k, v in message["attributes"].items()} if isinstance(message.get("attributes"), dict) else {}
    encoded = message.get("data")
    if not isinstance(encoded, str):
        raise NotAnEvent("the message has no data")
    try:
        data = _json(base64.b64decode(encoded, validate=True))
    except (binascii.Error, ValueError) as error:
        raise NotAnEvent(f"the message's data is no base64 of JSON: {error}") from None
    if not isinstance(data, dict):
        raise NotAnEvent("the message's data is no JSON object")
    return (data, attributes), identity


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotAnEvent(f"no JSON: {str(error)[:100]}") from None


def _pipeline_event(entry: dict[str, Any], message_id: str) -> Event:
    resource = entry["resource"] if isinstance(entry["resource"], dict) else {}
    labels = resource.get("labels") if isinstance(resource.get("labels"), dict) else {}
    if resource.get("type") != "aiplatform.googleapis.com/PipelineJob":
        raise NotAnEvent(f"a log entry of {str(resource.get('type'))[:80]}, not of a PipelineJob")
    if "pipeline_job_events" not in str(entry["logName"]):
        raise NotAnEvent("a log entry of a task, not of a job")
    payload = entry.get("jsonPayload") if isinstance(entry.get("jsonPayload"), dict) else {}
    nested = payload.get("payload") if isinstance(payload.get("payload"), dict) else {}
    state = str(payload.get("state") or nested.get("state") or "")
    parts = str(entry["logName"]).split("/")
    container = str(labels.get("resource_container") or "").removeprefix("projects/")
    project = container or (parts[1] if len(parts) > 1 and parts[0] == "projects" else "")
    job, region = str(labels.get("pipeline_job_id") or ""), str(labels.get("location") or "")
    for value, what in ((project, "project"), (region, "location"), (job, "pipeline_job_id"), (state, "state")):
        if not _NAME.fullmatch(value):
            raise NotAnEvent(f"the log entry has no usable {what}")
    own = entry.get("labels") if isinstance(entry.get("labels"), dict) else {}
    kept = tuple(sorted((str(k)[:100], str(v)[:200]) for k, v in list(own.items())[:50]))
    return Event("pipeline", f"projects/{project}/locations/{region}/pipelineJobs/{job}", state, state in FAILED_PIPELINE, kept, message_id)


def _build_event(build: dict[str, Any], message_id: str) -> Event:
    project, identity = str(build.get("projectId") or ""), str(build.get("id") or "")
    state = str(build.get("status") or "")
    region = str(build.get("name") or "").split("/locations/")[-1].split("/")[0] if "/locations/" in str(build.get("name") or "") else "global"
    for value, what in ((project, "projectId"), (identity, "id"), (state, "status"), (region, "location")):
        if not _NAME.fullmatch(value):
            raise NotAnEvent(f"the build has no usable {what}")
    labels = [("trigger", str((build.get("substitutions") or {}).get("TRIGGER_NAME") or ""))] if isinstance(build.get("substitutions"), dict) else []
    raw = json.dumps({"logsBucket": build.get("logsBucket"), "logUrl": build.get("logUrl"), "steps": _steps(build)})
    return Event("build", f"projects/{project}/locations/{region}/builds/{identity}", state, state in FAILED_BUILD, tuple(labels), message_id, raw)


def _steps(build: dict[str, Any]) -> list[dict[str, Any]]:
    steps = build.get("steps")
    if not isinstance(steps, list):
        return []
    return [{k: str(s.get(k))[:200] for k in ("id", "name", "status", "exitCode") if k in s} for s in steps[:200] if isinstance(s, dict)]
