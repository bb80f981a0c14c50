"""The card of the cleaned data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...runs.export.hugging_face import front_matter, task_of
from ...runs.folder import Run
from .dataset import FILE_NAME, WrittenData
from .inputs import TEXT

ROWS = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"), (1_000_000, "100K<n<1M"))
COLUMNS = {
    "id": "the sample",
    "label": "the label to use",
    "given_label": "as it came",
    "label_source": "where `label` is from: `given`, `suggested` by mslg, `reviewed` by a person, or `verified` before",
    "decision": "of the reviewer; empty if there is none",
    "suggested_label": "as it probably should be; the given one unless the sample was flagged",
    "label_quality": "the probability that the given label is right",
    "predicted_label": "by the trained model",
    "is_label_issue": "whether the given label was flagged as probably wrong",
    "soft_label": "a distribution over the classes",
    "rank": "0 is the least trusted label",
    "kind": "the kind of problem",
    "ambiguous": "how ambiguous the sample is",
    "no_class": "above 1: farther from every class than any verified sample",
    "duplicate_of": "the id of a near duplicate",
}
SHOWN = 20  # columns of features


def dataset_card(run: Run, written: WrittenData) -> str:
    """Metadata, what was done to the labels, and the columns."""
    about, summary = run.read_json("model.json"), run.read_json("summary.json")
    rows = written.counts.samples
    metadata = {
        "tags": ["noisy-labels", "mslg"],
        "task_categories": [task_of(run, about)],
        "size_categories": [next((words for most, words in ROWS if rows < most), "1M<n<10M")],
        "configs": [{"config_name": "default", "data_files": [{"split": "train", "path": written.data_files}]}],
    }
    return front_matter(metadata) + _text(run, written, summary)


def _text(run: Run, written: WrittenData, summary: Mapping[str, Any]) -> str:
    counts = written.counts
    flagged = int(summary.get("label_issues", 0))
    sources = ", ".join(f"{count} {name}" for name, count in sorted(counts.by_source.items()))
    labels = {name: words for name, words in COLUMNS.items() if name in written.columns}
    lines = [f"| `{name}` | {words} |" for name, words in {**_inputs(written), **labels}.items()]
    if len(written.inputs) > SHOWN:
        lines.insert(SHOWN, f"| … | {len(written.inputs) - SHOWN} more features |")
    table = "\n".join(lines)
    return f"""
# Cleaned data of {run.path.resolve().name}

{counts.samples} samples with the labels that they came with and better ones, found by mslg. {flagged} labels were
flagged as probably wrong; {counts.changed} labels differ from the given ones, and {counts.removed} samples were
removed in review. Labels by source: {sources or "none"}.

{_about_inputs(written)}

| column | |
|---|---|
{table}

Columns about suggestions are empty for samples that were verified before training. No person has confirmed a label
whose source is `given` or `suggested`.
"""


def _about_inputs(written: WrittenData) -> str:
    if written.why_not:
        return f"The inputs are not part of it, because {written.why_not}: `id` is the key to them."
    return "The inputs are part of it, as they were in training; whoever publishes them needs the right to do so."


def _inputs(written: WrittenData) -> dict[str, str]:
    if FILE_NAME in written.inputs:
        return {"image": f"the image, of the file that `{FILE_NAME}` names in metadata.parquet"}
    words = "the text" if written.inputs == (TEXT,) else "a feature"
    return {name.replace("|", "\\|").replace("`", "'"): words for name in written.inputs[:SHOWN]}
