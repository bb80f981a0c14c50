"""The notebook runs from its first cell to its last, is kept without outputs, and leads to pages that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "clean_my_data.ipynb"


def cells(kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == kind]


def test_it_is_kept_without_outputs() -> None:
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells("code"))


def test_its_links_lead_to_pages() -> None:
    links = [link for cell in cells("markdown") for link in re.findall(r"\]\(([^)]+)\)", "".join(cell["source"]))]
    assert "../docs/clean-my-data.md" in links
    assert [link for link in links if not (NOTEBOOK.parent / link).exists()] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_runs_from_start_to_end(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient ipykernel")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install nbclient ipykernel")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install nbclient ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    done = nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    told = "".join(
        output.get("text", "") for cell in done.cells for output in cell.get("outputs", []) if cell.cell_type == "code"
    )
    before, now = (float(share) for share in re.search(r"right: ([\d.]+)% before, ([\d.]+)% now", told).groups())  # type: ignore[union-attr]
    assert before < 75
    assert now > 90
    assert re.search(r"(9\d|100)% of the 100 worst were wrong", told)
    for name in ("runs/first/report.html", "runs/second/done", "cleaned.parquet"):
        assert (tmp_path / name).exists()
