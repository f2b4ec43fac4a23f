"""``python -m app``"""

import sys

from app.plain_imports import restore_plain_imports


def _run() -> int:
    restore_plain_imports()
    from app.main import main

    return main()


if __name__ == "__main__":
    sys.exit(_run())
