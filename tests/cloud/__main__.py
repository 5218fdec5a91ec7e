"""``python -m tests.cloud JOBS_DIR``: serve cases until interrupted; prints the environment that points clients here."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from tests.cloud import serve


def main() -> int:
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    folders = sorted(p.parent for p in Path(sys.argv[1]).rglob("pipeline_job.json"))
    with serve(folders) as cloud:
        for name, value in cloud.environ.items():
            print(f"export {name}={value}", flush=True)
        print(f"# {len(folders)} jobs; Ctrl-C stops", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
