"""docs/detectors.md and docs/detector_files.md have the families, parts and tensors of today."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"

spec = importlib.util.spec_from_file_location("detector_tables", DOCS / "detector_tables.py")
detector_tables = importlib.util.module_from_spec(spec)
spec.loader.exec_module(detector_tables)


@pytest.mark.parametrize("docname", detector_tables.TABLES)
def test_committed_page_has_todays_tables(docname):
    text = (DOCS.parent / f"{docname}.md").read_text(encoding="utf-8")
    assert detector_tables.filled(text, detector_tables.TABLES[docname]) == text, "run python docs/detector_tables.py"
