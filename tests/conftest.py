"""Shared pieces of the tests."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # two workers on two cores


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-result", type=Path, help="write the outcome of the run into this file")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    target = session.config.getoption("--record-result")
    if target is None or hasattr(session.config, "workerinput"):
        return
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    counts = {kind: len(reporter.stats.get(kind, [])) for kind in ("passed", "failed", "error", "skipped")}
    words = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    tests = sorted(report.nodeid for report in reporter.stats.get("passed", []))
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, {os.cpu_count()} cores"
    target.write_text("\n".join([f"{words} ({versions})", *tests]) + "\n")
