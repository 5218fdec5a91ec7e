"""The part of the GCS JSON API that is used: list, get, ranged download, upload with generation preconditions, delete."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.cloud import State, hang

STATUS = {"PERMISSION_DENIED": 403, "NOT_FOUND": 404, "RESOURCE_EXHAUSTED": 429, "INTERNAL": 500, "UNAVAILABLE": 503}


def start(state: State) -> tuple[ThreadingHTTPServer, int]:
    class Handler(_Handler):
        pass

    Handler.state = state
    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, server.server_address[1]


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is no news."""


class _Handler(BaseHTTPRequestHandler):
    state: State
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_PUT(self) -> None:
        self._serve("PUT")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, verb: str) -> None:
        url = urlsplit(self.path)
        query = {k: v[-1] for k, v in parse_qs(url.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = self.state.note("storage", f"{verb} {unquote(url.path)}")
        if kind == "hang":
            return hang(self.state)
        if kind == "cut":
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"x")
            self.close_connection = True
            return
        if kind:
            text = "caller does not have storage.objects.get access to the Google Cloud Storage object. Permission 'storage.objects.get' denied on resource (or it may not exist)."
            return self._error(STATUS[kind], text if kind == "PERMISSION_DENIED" else kind)
        if tested := re.fullmatch(r"/storage/v1/b/([^/]+)/iam/testPermissions", url.path):
            asked = parse_qs(url.query).get("permissions", [])
            return self._json(200, {"kind": "storage#testIamPermissionsResponse", "permissions": [p for p in asked if p not in self.state.denied and unquote(tested[1]) in self.state.objects]})
        m = re.fullmatch(r"(?:/(?P<upload>upload|download))?/storage/v1/b/(?P<bucket>[^/]+)(?:/o(?:/(?P<name>.+))?)?", url.path)
        if not m:
            return self._error(404, f"no such method here: {verb} {url.path}")
        bucket = unquote(m["bucket"])
        if m["upload"] == "upload" and verb in ("POST", "PUT"):
            return self._upload(bucket, query, body)
        objects = self.state.objects.get(bucket)
        if objects is None:
            return self._error(404, "The specified bucket does not exist.")
        if m["name"] is None:
            return self._list(bucket, objects, query)
        name = unquote(m["name"])
        if name not in objects:
            return self._error(404, f"No such object: {bucket}/{name}")
        data, generation = objects[name]
        if verb == "DELETE":
            with self.state.lock:
                del objects[name]
            return self._send(204, b"")
        if query.get("alt") == "media" or m["upload"] == "download":
            return self._media(data, generation)
        self._json(200, self._resource(bucket, name, data, generation))

    def _list(self, bucket: str, objects: dict[str, tuple[bytes, int]], query: dict[str, str]) -> None:
        prefix, start = query.get("prefix", ""), query.get("pageToken", "")
        size = min(int(query.get("maxResults") or 1000), 1000)
        names = [n for n in sorted(objects) if n.startswith(prefix) and n > start]
        answer: dict[str, Any] = {"kind": "storage#objects", "items": [self._resource(bucket, n, *objects[n]) for n in names[:size]]}
        if len(names) > size:
            answer["nextPageToken"] = names[size - 1]
        self._json(200, answer)

    def _media(self, data: bytes, generation: int) -> None:
        m = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        headers = {"Content-Type": "application/octet-stream", "x-goog-generation": str(generation)}
        if not m:
            return self._send(200, data, headers)
        start = int(m[1])
        end = min(int(m[2]) if m[2] else len(data) - 1, len(data) - 1)
        if start >= len(data):
            return self._error(416, "The requested range cannot be satisfied.")
        self._send(206, data[start : end + 1], {**headers, "Content-Range": f"bytes {start}-{end}/{len(data)}"})

    def _upload(self, bucket: str, query: dict[str, str], body: bytes) -> None:
        name = query.get("name")
        if query.get("uploadType") == "multipart":
            boundary = re.search(r'boundary="?([^";]+)"?', self.headers.get("Content-Type") or "")
            if not boundary:
                return self._error(400, "no boundary")
            parts = body.split(b"--" + boundary[1].encode())
            meta, data = (p.split(b"\r\n\r\n", 1)[1].removesuffix(b"\r\n") for p in parts[1:3])
            name = json.loads(meta).get("name") or name
        elif query.get("uploadType") == "media":
            data = body
        else:
            return self._error(400, f"uploadType {query.get('uploadType')!r} is not supported here")
        wanted = query.get("ifGenerationMatch")
        with self.state.lock:
            known = self.state.objects.get(bucket, {}).get(name)
            if wanted is not None and int(wanted) != (known[1] if known else 0):
                self._error(412, "At least one of the pre-conditions you specified did not hold.")
                return
            self.state.generation += 1
            self.state.objects.setdefault(bucket, {})[name] = (data, self.state.generation)
        self._json(200, self._resource(bucket, name, data, self.state.generation))

    def _resource(self, bucket: str, name: str, data: bytes, generation: int) -> dict[str, Any]:
        return {
            "kind": "storage#object", "name": name, "bucket": bucket, "size": str(len(data)), "generation": str(generation), "metageneration": "1",
            "updated": "2026-11-20T00:00:00.000Z", "timeCreated": "2026-11-20T00:00:00.000Z",
        }  # fmt: skip

    def _json(self, status: int, value: dict[str, Any]) -> None:
        self._send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _error(self, status: int, message: str) -> None:
        self._json(status, {"error": {"code": status, "message": message, "errors": [{"message": message, "reason": "x"}]}})

    def _send(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
