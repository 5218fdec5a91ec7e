"""The checked-in reference pages are what the code makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from check_failed_run.catalogue.model import CLASSES
from check_failed_run.report import references

FOLDER = Path(__file__).resolve().parent.parent / "references"


@pytest.mark.parametrize("name", ["failure-taxonomy.md", "root-cause-patterns.md", "vocabulary.md", "schemas.md"])
def test_pages_are_current(name):
    assert (FOLDER / name).read_text() == references.pages()[name], "run: python -m check_failed_run.report.references references"


def test_every_class_has_its_part():
    pages = references.pages()
    for name in CLASSES:
        assert f"\n## {name}\n" in pages["failure-taxonomy.md"] and f"\n## {name}\n" in pages["root-cause-patterns.md"]


def test_tables_are_whole():
    for name, text in references.pages().items():
        width = 0
        for line in text.split("\n"):
            cells = line.replace("\\|", "").count("|") if line.startswith("|") else 0
            assert not (width and cells) or cells == width, (name, line)
            width = cells
