"""From a diagnosis to a plan: which fixes, in which order, at which risk, with which exact commands."""

from check_failed_run.planning.fixes import Plan, PlannedFinding, PlannedFix, plan

__all__ = ["Plan", "PlannedFinding", "PlannedFix", "plan"]
