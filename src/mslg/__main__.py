"""`python -m mslg`."""

import sys
from pathlib import Path

# Python puts the current folder first, and a file there called timm.py would be imported as timm. The installed command
# does not look there; code that the user names is found by the registry.
if sys.path and Path(sys.path[0]).resolve() == Path.cwd() != Path(__file__).resolve().parents[1]:
    del sys.path[0]

from .cli import main

if __name__ == "__main__":
    main()
