"""Nothing that Windows lacks is reached from the application without a branch for Windows."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("app", "engine", "kernels", "packaging")

POSIX_MODULES = frozenset(
    {
        *("curses", "fcntl", "grp", "nis", "ossaudiodev", "posix", "pty", "pwd", "readline"),
        *("resource", "spwd", "syslog", "termios", "tty"),
    }
)

# Names of the standard library that Windows' Python does not have, or that do something else there
# (os.kill ends the process for any signal but two).
POSIX_NAMES = frozenset(
    {
        *(f"os.{name}" for name in (
            "chown", "chroot", "confstr", "ctermid", "eventfd", "fchdir", "fchmod", "fchown",
            "fdatasync", "fork", "forkpty", "fpathconf", "fstatvfs", "getegid", "geteuid", "getgid",
            "getgroups", "getloadavg", "getpgid", "getpgrp", "getpriority", "getresuid", "getsid",
            "getuid", "getxattr", "initgroups", "kill", "killpg", "lchown", "listxattr", "lockf",
            "lseek_data", "major", "makedev", "memfd_create", "mkfifo", "mknod", "nice", "openpty",
            "pathconf", "pidfd_open", "pipe2", "posix_fadvise", "posix_fallocate", "posix_spawn",
            "pread", "preadv", "pwrite", "readv", "sched_getaffinity", "sched_setaffinity",
            "sched_setscheduler", "sched_yield", "sendfile", "setegid", "seteuid", "setgid",
            "setpgid", "setpriority", "setsid", "setuid", "setxattr", "statvfs", "sync", "sysconf",
            "tcgetpgrp", "ttyname", "uname", "wait", "wait3", "wait4", "waitid", "writev",
            "O_CLOEXEC", "O_DIRECT", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC",
            "RTLD_GLOBAL", "RTLD_LAZY", "RTLD_LOCAL", "RTLD_NOW", "WEXITSTATUS", "WIFEXITED",
            "WNOHANG",
        )),
        *(f"signal.{name}" for name in (
            "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP",
            "SIGTSTP", "SIGUSR1", "SIGUSR2", "SIGWINCH", "alarm", "pause", "pthread_kill",
            "pthread_sigmask", "setitimer", "sigwait",
        )),
        *("socket.AF_UNIX", "socket.fromfd", "socket.AF_NETLINK", "socket.SO_REUSEPORT"),
        *("select.poll", "select.epoll", "select.kqueue"),
        *("time.clock_gettime", "time.clock_settime", "time.pthread_getcpuclockid", "time.tzset"),
        *("time.CLOCK_BOOTTIME", "time.CLOCK_MONOTONIC", "time.CLOCK_REALTIME"),
        *("mmap.MAP_PRIVATE", "mmap.MAP_SHARED", "mmap.PROT_READ", "mmap.PROT_WRITE"),
        *("mmap.MAP_ANONYMOUS", "shutil.chown", "sys.setdlopenflags"),
        *("sys.getdlopenflags", "multiprocessing.get_context", "asyncio.SafeChildWatcher"),
    }
)  # fmt: skip
POSIX_KEYWORDS = frozenset({"preexec_fn", "start_new_session", "pass_fds", "process_group"})
POSIX_PLACES = ("/proc", "/sys/", "/dev/", "/tmp", "/etc/", "/usr/", "/var/", "/bin/", "/run/")

# What has its branch for Windows outside of the function, or needs none: (file, what) → which.
BRANCHES = {
    ("app/frozen.py", "/etc/"): "trust_the_system returns at once elsewhere than on Linux",
    ("app/network_drive.py", "/proc"): "is_on_network asks GetDriveTypeW on Windows",
    ("engine/cuda_probe.py", "/dev/"): "has_nvidia_driver looks for nvcuda.dll on Windows",
    ("engine/cuda_probe.py", "/proc"): "has_nvidia_driver looks for nvcuda.dll on Windows",
    ("packaging/licences.py", "/usr/"): "system_licence finds none where that folder is absent",
    ("packaging/system_packages.py", "/usr/"): "packages_of looks into SYSTEMROOT on Windows",
    ("packaging/qt_libraries.py", "/usr/"): "tasks.check_qt returns at once on Windows",
}


class Finder(ast.NodeVisitor):
    """Collects (line, what) that Windows lacks and that no test of the platform guards."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []
        self._modules: dict[str, str] = {}
        self._guards = 0

    # --- guards -----------------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self._visit_guarded(node.body, says_posix(node.test))
        self._visit_guarded(node.orelse, says_windows(node.test))

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.visit(node.test)
        self._visit_guarded([node.body], says_posix(node.test))
        self._visit_guarded([node.orelse], says_windows(node.test))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self.visit(node.args)
        guarded = False
        for statement in node.body:
            self._visit_guarded([statement], guarded)
            # `if sys.platform == "win32": …; return` guards what follows.
            if isinstance(statement, ast.If) and leaves(statement.body):
                guarded = guarded or says_windows(statement.test)

    def _visit_guarded(self, nodes: list[ast.stmt] | list[ast.expr], guarded: bool) -> None:
        self._guards += guarded
        for node in nodes:
            self.visit(node)
        self._guards -= guarded

    # --- what Windows lacks -----------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._modules[alias.asname or alias.name.split(".")[0]] = alias.name
            if alias.name.split(".")[0] in POSIX_MODULES:
                self._note(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            if (node.module or "").split(".")[0] in POSIX_MODULES or name in POSIX_NAMES:
                self._note(node, name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.value, ast.Name):
            name = f"{self._modules.get(node.value.id, node.value.id)}.{node.attr}"
            if name in POSIX_NAMES:
                self._note(node, name)
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg in POSIX_KEYWORDS:
            self._note(node.value, node.arg)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            for place in POSIX_PLACES:
                if node.value.startswith(place):
                    self._note(node, place)

    def visit_Expr(self, node: ast.Expr) -> None:
        # Not the words of a docstring.
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def _note(self, node: ast.AST, what: str) -> None:
        if not self._guards:
            self.found.append((getattr(node, "lineno", 0), what))


def says_posix(test: ast.expr) -> bool:
    """Whether ``test`` holds elsewhere than on Windows only."""
    text = ast.unparse(test).replace('"', "'")
    return any(
        part in text
        for part in ("sys.platform == 'linux'", "sys.platform != 'win32'", "os.name == 'posix'")
    )


def says_windows(test: ast.expr) -> bool:
    """Whether ``test`` holds on Windows, at the least."""
    text = ast.unparse(test).replace('"', "'")
    return any(
        part in text
        for part in ("sys.platform == 'win32'", "sys.platform != 'linux'", "os.name == 'nt'")
    )


def leaves(body: list[ast.stmt]) -> bool:
    return isinstance(body[-1], ast.Return | ast.Raise | ast.Continue)


def unguarded(source: str) -> list[str]:
    finder = Finder()
    finder.visit(ast.parse(source))
    return [what for _line, what in finder.found]


def findings() -> Iterator[tuple[str, int, str]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            finder = Finder()
            finder.visit(ast.parse(path.read_text(encoding="utf-8")))
            name = path.relative_to(ROOT).as_posix()
            yield from ((name, line, what) for line, what in finder.found)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import fcntl", ["fcntl"]),
        ("from pwd import getpwuid", ["pwd.getpwuid"]),
        ("import os\nos.fork()", ["os.fork"]),
        ("import os as o\no.uname()", ["os.uname"]),
        ("from signal import SIGKILL", ["signal.SIGKILL"]),
        ("open('/proc/self/stat')", ["/proc"]),
        ("import subprocess\nsubprocess.Popen([], start_new_session=True)", ["start_new_session"]),
        ("import sys\nif sys.platform == 'win32':\n    import fcntl", ["fcntl"]),
        ("import sys\nif sys.platform == 'win32':\n    pass\nelse:\n    import fcntl", []),
        ("import sys, os\nif sys.platform == 'linux':\n    os.fork()", []),
        ("import sys, os\nx = os.getuid() if sys.platform != 'win32' else 0", []),
        (
            "import sys, os\ndef f():\n    if sys.platform == 'win32':\n        return 0\n"
            "    return os.getuid()",
            [],
        ),
        (
            "import sys, os\ndef f():\n    if sys.platform == 'win32':\n        pass\n"
            "    return os.getuid()",
            ["os.getuid"],
        ),
        ("import errno\nx = getattr(errno, 'EDQUOT', 0)", []),
        ('"""Reads /proc."""\nx = 1', []),
    ],
)
def test_guard_is_told_from_none(source: str, expected: list[str]) -> None:
    assert unguarded(source) == expected


def test_nothing_that_windows_lacks_is_reached_without_a_branch() -> None:
    found = [f"{n}:{line}: {what}" for n, line, what in findings() if (n, what) not in BRANCHES]
    assert found == []


def test_named_branches_are_still_there() -> None:
    assert set(BRANCHES) <= {(name, what) for name, _line, what in findings()}


def test_files_are_replaced_with_patience() -> None:
    # Windows refuses while a virus scanner looks at the new file; engine.api.files tries again.
    movers = {"os.replace", "os.rename", "os.renames", "shutil.move"}
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("app", "engine", "kernels")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path != ROOT / "engine" / "api" / "files.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in movers
    ]
    assert wrong == []


def test_every_text_file_is_opened_as_utf_8() -> None:
    # The ordinary encoding of Windows is that of its language.
    wrong = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            wrong += [
                f"{path.relative_to(ROOT)}:{node.lineno}"
                for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
                if isinstance(node, ast.Call) and opens_text_without_encoding(node)
            ]
    assert wrong == []


def opens_text_without_encoding(call: ast.Call) -> bool:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if any(keyword.arg in ("encoding", None) for keyword in call.keywords):
        return False
    constants = [a.value for a in call.args if isinstance(a, ast.Constant)]
    if name == "read_text":
        return not call.args
    if name == "write_text":
        return len(call.args) < 2
    if name != "open":
        return False
    if isinstance(function, ast.Name):
        mode = constants[-1] if len(call.args) > 1 else "r"
    elif isinstance(function.value, ast.Name) and function.value.id in ("os", "archive", "bundle"):
        return False
    else:
        # A path's open, not a dialog's or an archive's: those have no mode, or another kind.
        mode = constants[0] if constants else "b"
    return isinstance(mode, str) and "b" not in mode and set(mode) <= set("rwax+t")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("path.read_text()", True),
        ("path.read_text('utf-8')", False),
        ("path.write_text(x)", True),
        ("path.write_text(x, encoding='utf-8')", False),
        ("open(x)", True),
        ("open(x, 'rb')", False),
        ("path.open('w')", True),
        ("path.open('wb')", False),
        ("dialog.open()", False),
    ],
)
def test_missing_encoding_is_noticed(source: str, expected: bool) -> None:
    call = ast.parse(source, mode="eval").body
    assert isinstance(call, ast.Call)
    assert opens_text_without_encoding(call) is expected


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_types_hold_on_windows(tmp_path: Path) -> None:
    # typeshed knows of each name whether Windows has it.
    command = [sys.executable, "-m", "mypy", "--platform", "win32", "--cache-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
