"""Reports to a folder of a GCS bucket."""

from __future__ import annotations

from typing import Any

from check_failed_run.publish.files import REPORT_NAME, PublishError, to_json
from check_failed_run.report.model import Report

DEADLINE = 60.0  # seconds for the upload with its retries


def is_gcs(text: str) -> bool:
    return text.startswith("gs://")


def write_report(report: Report | dict[str, Any], uri: str, name: str = REPORT_NAME) -> str:
    """Write the report below ``uri`` (``gs://BUCKET/FOLDER``). Returns the object's address.

    Raises:
        PublishError: it cannot be written; the message names the role that is missing.
    """
    try:
        from check_failed_run.sources.clients import Clients, Fault
        from check_failed_run.sources.gcs import write_text
    except ImportError as error:
        raise PublishError(f"cannot write to {uri}: the package {error.name} is missing. Install check-failed-run[cloud].") from None
    target = f"{uri.rstrip('/')}/{name}"
    try:
        write_text(Clients("", "", deadline=DEADLINE), target, to_json(report))
    except ValueError as error:
        raise PublishError(f"cannot write the report: {error}.") from None
    except Fault as fault:
        advice = {
            403: f"grant roles/storage.objectUser on the bucket: gcloud storage buckets add-iam-policy-binding {'/'.join(uri.split('/')[:3])} --member=PRINCIPAL --role=roles/storage.objectUser",
            401: "sign in: gcloud auth application-default login",
            404: "name a bucket that exists in --out-dir",
        }.get(fault.status, "try again, or name a local folder in --out-dir")
        raise PublishError(f"cannot write {target}: {fault.reason()}; {advice}") from fault
    return target
