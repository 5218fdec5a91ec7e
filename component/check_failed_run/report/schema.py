"""The JSON Schema of the report, built from the dataclasses of ``report/model.py``. pydantic is imported only here, and late."""

from __future__ import annotations

import functools
import json
from typing import Any

from check_failed_run.report.model import SCHEMA_VERSION, SKILL_NAME, Report


@functools.cache
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(Report)


def json_schema() -> dict[str, Any]:
    """The schema of ``check-failed-run.json`` (draft 2020-12, names as written in the file)."""
    schema = _adapter().json_schema(by_alias=True, mode="validation")
    properties = schema["properties"]
    properties["schema_version"] = {"type": "string", "pattern": r"^1\.\d+$", "default": SCHEMA_VERSION}
    properties["skill_name"] = {"const": SKILL_NAME, "type": "string"}
    # Base keys are always written, whatever their defaults in Python are.
    schema["required"] = list(dict.fromkeys(["schema_version", "skill_name", *schema["required"]]))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": SKILL_NAME}


def validate(data: dict[str, Any]) -> Report:
    """``data`` as a Report.

    Raises:
        pydantic.ValidationError: a key is missing, unknown or of the wrong type.
    """
    return _adapter().validate_python(data)


def text() -> str:
    """The schema as it is checked in."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"


if __name__ == "__main__":
    print(text(), end="")
