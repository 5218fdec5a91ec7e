"""What several test files share: the Docker engine and the images of ``make images``."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

import pytest

IMAGE = os.environ.get("TEST_IMAGE", "check-failed-run:0.1.0")
EXAMPLE_IMAGE = os.environ.get("TRAINING_IMAGE", "check-failed-run-example-python:0.1.0")


@functools.cache
def image_problem() -> str | None:
    """Why tests with the image cannot run, or None."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    for command, why in (
        (["docker", "info"], "no Docker engine answers"),
        (["docker", "image", "inspect", IMAGE, EXAMPLE_IMAGE], f"{IMAGE} or {EXAMPLE_IMAGE} is missing (make images)"),
    ):
        try:
            done = subprocess.run(command, capture_output=True, timeout=60)
        except subprocess.TimeoutExpired:
            return why
        if done.returncode:
            return why
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("image") and (problem := image_problem()):
        if os.environ.get("CI"):
            pytest.fail(f"{problem}; in CI the image must be tested", pytrace=False)
        pytest.skip(problem)
