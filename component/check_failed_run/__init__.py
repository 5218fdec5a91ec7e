"""check-failed-run: says why a training run or pipeline failed, proves it, and says what to do next."""

from __future__ import annotations

from typing import Any

__all__ = ["Report", "diagnose", "exit_handler", "read"]


def __getattr__(name: str) -> Any:
    # loaded when used: the local command must not pay for what it does not need
    if name in ("diagnose", "read"):
        from check_failed_run import api

        return getattr(api, name)
    if name == "Report":
        from check_failed_run.report.model import Report

        return Report
    if name == "exit_handler":
        from check_failed_run.component import exit_handler

        return exit_handler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
