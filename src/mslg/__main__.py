"""`python -m mslg`."""

from .cli import main

if __name__ == "__main__":
    main()
