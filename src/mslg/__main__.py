"""`python -m mslg`."""

import os
import sys

# Python puts the current folder first, and a file there called timm.py would be imported as timm. The installed command
# does not look there; code that the user names is found by the registry.
package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
if sys.path and os.path.realpath(sys.path[0] or ".") == os.path.realpath(".") != package:
    del sys.path[0]

from .cli import main  # noqa: E402

if __name__ == "__main__":
    main()
