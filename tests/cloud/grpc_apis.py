"""PipelineService, JobService and LoggingServiceV2 with the official messages, as generic gRPC handlers."""

from __future__ import annotations

import re
import time
from concurrent import futures
from typing import Any

import grpc
from google.cloud.aiplatform_v1 import types as vertex
from google.cloud.logging_v2 import types as logging
from google.protobuf.json_format import ParseDict, ParseError

from tests.cloud import State, hang
from tests.cloud.filters import FilterError, compile_filter

NEEDED = {
    "pipelines": "Permission 'aiplatform.pipelineJobs.get' denied on resource '//aiplatform.googleapis.com/projects/p/locations/r' (or it may not exist).",
    "jobs": "Permission 'aiplatform.customJobs.get' denied on resource '//aiplatform.googleapis.com/projects/p/locations/r' (or it may not exist).",
    "logging": "Permission 'logging.logEntries.list' denied for all log views",
}
MESSAGES = {
    "NOT_FOUND": "Requested entity was not found.",
    "RESOURCE_EXHAUSTED": "Quota exceeded for quota metric 'Read requests' and limit 'Read requests per minute' of service 'logging.googleapis.com'",
    "INTERNAL": "Internal error encountered.",
    "UNAVAILABLE": "The service is currently unavailable.",
}


class Apis(grpc.GenericRpcHandler):
    def __init__(self, state: State):
        self.state = state
        self.reads: list[float] = []
        ai, log = "google.cloud.aiplatform.v1", "google.logging.v2"
        self.methods = {
            f"/{ai}.PipelineService/GetPipelineJob": ("pipelines", vertex.GetPipelineJobRequest, vertex.PipelineJob, self.get_pipeline_job),
            f"/{ai}.PipelineService/ListPipelineJobs": ("pipelines", vertex.ListPipelineJobsRequest, vertex.ListPipelineJobsResponse, self.list_pipeline_jobs),
            f"/{ai}.PipelineService/GetTrainingPipeline": ("pipelines", vertex.GetTrainingPipelineRequest, vertex.TrainingPipeline, self.get_job),
            f"/{ai}.JobService/GetCustomJob": ("jobs", vertex.GetCustomJobRequest, vertex.CustomJob, self.get_job),
            f"/{ai}.JobService/GetBatchPredictionJob": ("jobs", vertex.GetBatchPredictionJobRequest, vertex.BatchPredictionJob, self.get_job),
            f"/{ai}.JobService/GetHyperparameterTuningJob": ("jobs", vertex.GetHyperparameterTuningJobRequest, vertex.HyperparameterTuningJob, self.get_job),
            f"/{log}.LoggingServiceV2/ListLogEntries": ("logging", logging.ListLogEntriesRequest, logging.ListLogEntriesResponse, self.list_log_entries),
        }

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        found = self.methods.get(details.method)
        if found is None:
            return None
        api, request, response, method = found

        def run(message: Any, context: grpc.ServicerContext) -> Any:
            self._fail(self.state.note(api, details.method.rsplit("/", 1)[-1]), api, context)
            return method(message, context, response)

        return grpc.unary_unary_rpc_method_handler(run, request_deserializer=request.deserialize, response_serializer=response.serialize)

    def _fail(self, kind: str | None, api: str, context: grpc.ServicerContext) -> None:
        if kind is None:
            return
        if kind == "hang":
            hang(self.state)
            context.abort(grpc.StatusCode.CANCELLED, "stopped")
        if kind == "cut":
            context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        context.abort(grpc.StatusCode[kind], NEEDED[api] if kind == "PERMISSION_DENIED" else MESSAGES[kind])

    # methods ----------------------------------------------------------------------------------------------

    def _number(self, name: str) -> str:
        """A resource name with the project's number, as the service stores it; what users type may hold the id."""
        return re.sub(r"^projects/([^/]+)", lambda m: "projects/" + self.state.projects.get(m[1], m[1]), name)

    def get_pipeline_job(self, request: Any, context: Any, response: Any) -> Any:
        job = self.state.pipeline_jobs.get(self._number(request.name))
        if job is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"The PipelineJob {request.name} does not exist.")
        return parse(job, response, context)

    def list_pipeline_jobs(self, request: Any, context: Any, response: Any) -> Any:
        m = re.fullmatch(r'display_name="([^"]*)"', request.filter)
        if not m or request.order_by not in ("create_time desc", ""):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"filter not supported here: {request.filter!r}, {request.order_by!r}")
        parent = self._number(request.parent)
        jobs = [j for n, j in self.state.pipeline_jobs.items() if n.startswith(parent + "/") and j.get("displayName") == m[1]]
        jobs.sort(key=lambda j: j.get("createTime", ""), reverse=True)
        found = response()
        for job in jobs[: request.page_size or 100]:
            found.pipeline_jobs.append(parse({k: v for k, v in job.items() if k != "jobDetail"}, vertex.PipelineJob, context))  # list calls leave it out
        return found

    def get_job(self, request: Any, context: Any, response: Any) -> Any:
        job = self.state.jobs.get(self._number(request.name)) or self.state.jobs.get(request.name)
        if job is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"The job {request.name} does not exist.")
        return parse(job, response, context)

    def list_log_entries(self, request: Any, context: Any, response: Any) -> Any:
        if self.state.quota is not None:
            now = time.monotonic()
            self.reads = [t for t in self.reads if now - t < 60]
            if len(self.reads) >= self.state.quota:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, MESSAGES["RESOURCE_EXHAUSTED"])
            self.reads.append(now)
        if not request.resource_names:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "resource_names is required")
        if request.page_size > 1000:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "page_size is over 1000")
        if request.order_by not in ("", "timestamp asc", "timestamp desc"):
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"order_by {request.order_by!r}")
        try:
            test = compile_filter(request.filter)
            projects = {n.removeprefix("projects/") for n in request.resource_names}
            projects |= {i for i, number in self.state.projects.items() if number in projects} | {self.state.projects.get(p, p) for p in projects}
            found = [e for e in self.state.entries if str(e.get("logName", "")).split("/")[1:2] and e["logName"].split("/")[1] in projects and test(e)]
        except FilterError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        found.sort(key=lambda e: (_time(e), e.get("insertId", "")), reverse=request.order_by == "timestamp desc")
        start = int(request.page_token or 0)
        size = request.page_size or 50
        answer = response()
        for entry in found[start : start + size]:
            answer.entries.append(parse(entry, logging.LogEntry, context))
        if start + size < len(found):
            answer.next_page_token = str(start + size)
        return answer


def _time(entry: dict[str, Any]) -> str:
    head, _, fraction = str(entry.get("timestamp", "")).rstrip("Z").partition(".")
    return f"{head}.{fraction:0<9}"


def parse(data: dict[str, Any], kind: Any, context: Any) -> Any:
    """JSON to the official message. Unknown fields are dropped, as an older client drops them."""
    message = kind()
    try:
        ParseDict(data, kind.pb(message), ignore_unknown_fields=True)
    except ParseError as error:
        context.abort(grpc.StatusCode.INTERNAL, f"the case's JSON is no {kind.__name__}: {error}")
    return message


def start(state: State) -> tuple[grpc.Server, int]:
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8), options=[("grpc.max_send_message_length", 64 << 20)])
    server.add_generic_rpc_handlers((Apis(state),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port
