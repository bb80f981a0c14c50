"""What a user is told about an error."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from pathlib import Path

from .. import __version__
from ..runtime.printable import printable
from .words import in_cli_words

# Errors of other libraries that a user can do something about, by a part of their text.
ADVICE = {
    "Torch not compiled with CUDA": "this torch has no CUDA; use --device cpu, or install torch with CUDA",
    "No CUDA GPUs are available": "there is no GPU here; use --device cpu",
    "Found no NVIDIA driver": "there is no NVIDIA driver here; use --device cpu",
    "CUDA out of memory": "the GPU has too little memory; use a smaller --batch-size, or --set accumulate=2",
    "DefaultCPUAllocator: can't allocate memory": "there is too little memory; use less data or a smaller network",
    "DataLoader worker": "a process that decodes images has died; try --workers 0",
}


def explain(error: Exception, *, foreseen: bool) -> str:
    """One message. An error that nobody has foreseen also gets a file with its traceback, and how to report it."""
    words = printable(in_cli_words(_text(error)) or type(error).__name__)
    if isinstance(error, MemoryError):
        return f"there is too little memory for this ({words}); use less data, or a machine with more"
    if foreseen and str(error):
        return words
    advice = next((advice for part, advice in ADVICE.items() if part in words), None)
    if advice is not None:
        return f"{words.splitlines()[0]}; {advice}"
    where = _written(error)
    kind = f"{type(error).__name__}: " if str(error) else ""
    line = f"unexpected: {kind}{' '.join(words.split())[:500]}"
    report = "please report it with this file, as an issue of the project"
    return f"{line}\nthe traceback is in {where}; {report}" if where else line


def _text(error: Exception) -> str:
    """Without the number of a system error, which tells a user nothing."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error)


def _written(error: Exception) -> Path | None:
    """The file of the traceback; None if no file can be written."""
    about = f"mslg {__version__}, Python {sys.version}\n{' '.join(sys.argv)}\n\n"
    text = about + "".join(traceback.format_exception(error))
    try:
        number, name = tempfile.mkstemp(prefix="mslg-error-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        return None
    return Path(name)
