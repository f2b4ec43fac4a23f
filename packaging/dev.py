"""Quire's one command for users and developers: run, test, lint, build, bench. See README.md.

Needs nothing but Python: everything else is installed into .venv beside this folder.
"""

import shutil
import sys

OLDEST_PYTHON = (3, 11)

if sys.version_info < OLDEST_PYTHON:
    # Before the import below, which an older Python cannot read.
    newer = [p for p in map(shutil.which, ("python3.13", "python3.12", "python3.11")) if p]
    sys.exit(
        "Python is too old: this is {}.{} ({}), Quire needs {}.{} or newer.\nWhat to do: {}".format(
            *sys.version_info[:2],
            sys.executable,
            *OLDEST_PYTHON,
            "start the same command with " + newer[0] if newer else "install a newer Python.",
        )
    )

from tasks import main  # noqa: E402  only after the check above

if __name__ == "__main__":
    sys.exit(main())
