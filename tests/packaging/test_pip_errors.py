"""Each way pip fails is told apart, with something to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pip_errors import explain_pip_failure

UNREACHABLE = """\
WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<x>: Failed to
establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/torch/
ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: none)
ERROR: No matching distribution found for torch==2.13.0
"""
UNKNOWN_VERSION = """\
ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: 2.1.0)
ERROR: No matching distribution found for torch==2.13.0
"""


@pytest.mark.parametrize(
    ("errors", "cause", "action"),
    [
        (UNREACHABLE, "cannot be reached", "HTTPS_PROXY"),
        (UNKNOWN_VERSION, "no torch==2.13.0 for this Python", "another Python version"),
        ("ERROR: [Errno 28] No space left on device", "disk filled up", "TMPDIR"),
        ("OSError: There is not enough space on the disk", "disk filled up", "TEMP"),
        ("SSLError(SSLCertVerificationError(1, 'x'))", "certificate", "global.cert"),
        ("ERROR: something new", "pip failed", "run it again"),
    ],
)
def test_explanation(tmp_path: Path, errors: str, cause: str, action: str) -> None:
    problem = explain_pip_failure(errors, tmp_path)
    assert cause in problem.cause
    assert action in problem.action
    assert str(problem) == f"{problem.cause}\nWhat to do: {problem.action}"
