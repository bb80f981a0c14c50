"""A cleaned data set as Label Studio tasks: decided labels as annotations, suggested ones as predictions.

Label Studio serves local files under /data/local-files/?d=PATH, with PATH relative to the folder in
LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT, if LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED is true.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from ... import __version__
from ...runtime.files import replacing, write_atomically
from .samples import Sample

CHOICES, IMAGE = "label", "image"  # names of the two tags in the labelling interface
DECIDED = ("reviewed", "verified")


def write_label_studio(path: Path, pieces: Iterator[list[Sample]], classes: Sequence[str], root: Path) -> None:
    """A list of tasks, and the labelling interface for them in an XML file of the same name."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.write("[")
        first = True
        for piece in pieces:
            for sample in piece:
                file.write(("" if first else ",") + "\n" + json.dumps(task(sample, root), ensure_ascii=False))
                first = False
        file.write("\n]\n")
    write_atomically(path.with_suffix(".xml"), interface(classes).encode())


def interface(classes: Sequence[str]) -> str:
    """The labelling interface: an image and a choice of one class."""
    choices = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in classes)
    return (
        f'<View>\n  <Image name="{IMAGE}" value="${IMAGE}"/>\n'
        f'  <Choices name="{CHOICES}" toName="{IMAGE}" choice="single" showInLine="true">\n'
        f"{choices}  </Choices>\n</View>\n"
    )


def task(sample: Sample, root: Path) -> dict[str, Any]:
    """One task. A decided label is an annotation, the suggested one a prediction."""
    assert sample.path is not None
    about: dict[str, Any] = {"id": sample.id, "given_label": sample.given_label}
    if sample.label_quality is not None and sample.label_quality == sample.label_quality:
        about["label_quality"] = round(sample.label_quality, 6)
    found: dict[str, Any] = {"data": {IMAGE: address(sample.path, root), **about}}
    if sample.label_source in DECIDED:
        found["annotations"] = [{"result": [_choice(sample.label)], "ground_truth": True}]
    if sample.suggested_label is not None:
        prediction: dict[str, Any] = {
            "model_version": f"mslg {__version__}",
            "result": [_choice(sample.suggested_label)],
        }
        if "label_quality" in about:
            # Label Studio sorts by it: the probability that the given label is right to be kept, or changed.
            same = sample.suggested_label == sample.given_label
            prediction["score"] = about["label_quality"] if same else round(1 - about["label_quality"], 6)
        found["predictions"] = [prediction]
    return found


def address(path: str, root: Path) -> str:
    """The address of a file in Label Studio."""
    whole, top = Path(path).absolute(), root.absolute()
    if not whole.is_relative_to(top):
        raise ValueError(
            f"{whole} is not below {top}; pass the folder from which Label Studio serves files with --document-root"
        )
    return f"/data/local-files/?d={quote(whole.relative_to(top).as_posix())}"


def _choice(label: str) -> dict[str, Any]:
    return {"from_name": CHOICES, "to_name": IMAGE, "type": "choices", "value": {"choices": [label]}}
