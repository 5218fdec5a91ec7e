"""The failure hook: a failure event in, one useful message out. Runs on Cloud Run as ``check-failed-run serve``."""
