"""What was done for each failure, in GCS. There is no database: an object that is created only where none is, is a lock.

    claims/<key>               who works on it, and until when
    reports/<job>/<state>/...  the report and the card
    sent/<key>/<target>        a message that its target has accepted
    done/<key>                 all of it
    threads/<fingerprint>/<key>  one per failure of that fingerprint: how often
    threads-first/<fingerprint>  since when
    threads-sent/<fingerprint>   when a message about it was last sent
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


class LedgerError(Exception):
    """The bucket cannot be read or written now. Trying again later may help."""


def key_of(text: str) -> str:
    """A short name of a failure for object names."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Thread:
    """The failures of one fingerprint: ``count`` with this one, ``first`` and ``last_sent`` in seconds since the epoch."""

    count: int
    first: float
    last_sent: float | None


class Ledger:
    """Marks below ``prefix`` in a bucket.

    Args:
        bucket: a google-cloud-storage Bucket.
        prefix: folder of the hook's objects.
        lease: seconds after which a claim counts as abandoned.
        clock: seconds since the epoch.
    """

    def __init__(self, bucket: Any, prefix: str = "check-failed-run", *, lease: float = 540.0, clock: Callable[[], float] = time.time):
        self.bucket, self.prefix, self.lease, self.clock = bucket, prefix.strip("/"), lease, clock

    def is_done(self, key: str) -> bool:
        return self._read(f"done/{key}") is not None

    def claim(self, key: str) -> bool:
        """Take the work on a failure; False where another instance has it."""
        until = json.dumps({"until": self.clock() + self.lease})
        if self._create(f"claims/{key}", until):
            return True
        found = self._read(f"claims/{key}")
        if found is None:
            return self._create(f"claims/{key}", until)
        value, generation = found
        if float(value.get("until") or 0) > self.clock():
            return False
        return self._create(f"claims/{key}", until, generation=generation)

    def release(self, key: str) -> None:
        """Give a claim back, so that the next delivery need not wait for its end."""
        self._delete(f"claims/{key}")

    def finish(self, key: str) -> None:
        self._create(f"done/{key}", json.dumps({"at": self.clock()}))
        self._delete(f"claims/{key}")

    def was_sent(self, key: str, target: str) -> bool:
        return self._read(f"sent/{key}/{target}") is not None

    def mark_sent(self, key: str, target: str) -> None:
        self._create(f"sent/{key}/{target}", json.dumps({"at": self.clock()}))

    def thread(self, fingerprint: str, key: str) -> Thread:
        """Count this failure in its thread, once however often it is called."""
        now = json.dumps({"at": self.clock()})
        self._create(f"threads/{fingerprint}/{key}", now)
        if self._create(f"threads-first/{fingerprint}", now):
            first = self.clock()
        else:
            found = self._read(f"threads-first/{fingerprint}")
            first = float(found[0].get("at") or self.clock()) if found else self.clock()
        last = self._read(f"threads-sent/{fingerprint}")
        # names only: a thread may be long, and reading its marks would cost a request each
        return Thread(max(1, len(self._names(f"threads/{fingerprint}/"))), first, float(last[0].get("at") or 0) if last else None)

    def mark_thread(self, fingerprint: str) -> None:
        """A message about this fingerprint was sent now."""
        found = self._read(f"threads-sent/{fingerprint}")
        self._create(f"threads-sent/{fingerprint}", json.dumps({"at": self.clock()}), generation=found[1] if found else None)

    def put(self, name: str, data: str, content_type: str) -> None:
        """Write a result, replacing an earlier one."""
        self._guard(lambda: self.bucket.blob(f"{self.prefix}/{name}").upload_from_string(data, content_type=content_type, timeout=20))

    def get(self, name: str) -> dict[str, Any] | None:
        found = self._read(name)
        return found[0] if found else None

    def uri(self, name: str) -> str:
        return f"gs://{self.bucket.name}/{self.prefix}/{name}"

    # objects ------------------------------------------------------------------------------------------------

    def _create(self, name: str, data: str, generation: int | None = None) -> bool:
        """Write where there is no object, or where it still has that generation."""
        from google.api_core.exceptions import PreconditionFailed

        def write() -> bool:
            try:
                self.bucket.blob(f"{self.prefix}/{name}").upload_from_string(data, content_type="application/json", if_generation_match=generation or 0, timeout=20)
            except PreconditionFailed:
                return False
            return True

        return self._guard(write)

    def _read(self, name: str) -> tuple[dict[str, Any], int] | None:
        from google.api_core.exceptions import NotFound

        def read() -> tuple[dict[str, Any], int] | None:
            blob = self.bucket.blob(f"{self.prefix}/{name.removeprefix(self.prefix + '/')}")
            try:
                data = blob.download_as_bytes(timeout=20)
                loaded = json.loads(data)
            except NotFound:
                return None
            except ValueError:
                loaded = {}
            return (loaded if isinstance(loaded, dict) else {}), blob.generation or 0

        return self._guard(read)

    def _delete(self, name: str) -> None:
        from google.api_core.exceptions import NotFound

        def delete() -> None:
            try:
                self.bucket.blob(f"{self.prefix}/{name}").delete(timeout=20)
            except NotFound:
                return

        self._guard(delete)

    def _names(self, folder: str) -> list[str]:
        return self._guard(lambda: [b.name for b in self.bucket.client.list_blobs(self.bucket, prefix=f"{self.prefix}/{folder}", fields="items(name),nextPageToken", timeout=20)])

    @staticmethod
    def _guard(run: Callable[[], Any]) -> Any:
        from google.api_core.exceptions import GoogleAPICallError, RetryError
        from requests.exceptions import RequestException

        try:
            return run()
        except (GoogleAPICallError, RetryError, RequestException, OSError) as error:
            raise LedgerError(f"{type(error).__name__}: {error}") from error
