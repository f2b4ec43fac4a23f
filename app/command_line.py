"""The command line. Qt-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for; None where it did not say."""

    data_dir: Path | None = None
    models_dir: Path | None = None
    model: str | None = None
    self_test: bool = False
    tabs: int = 4
    json_file: Path | None = None
    screenshot: Path | None = None
    trace: Path | None = None


def parse(arguments: Sequence[str]) -> Options:
    """Reads the arguments. Ends the process with status 2 and a message if they make no sense."""
    if not arguments:
        return Options()
    # Imported late: the window of an ordinary start need not wait for it.
    import argparse

    from app.library.places import model_of

    parser = argparse.ArgumentParser(
        prog="python -m app", description="Chat with a local language model, and see its cache."
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help="use another profile")
    parser.add_argument("--models-dir", type=Path, metavar="DIR", help="use another model folder")
    parser.add_argument("--model", metavar="PATH", help="load this GGUF file or model folder")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="open a recorded cache trace")
    test = parser.add_argument_group("self-test")
    test.add_argument("--self-test", action="store_true", help="run the main job and report it")
    test.add_argument("--tabs", type=int, metavar="N", help="tabs that chat at once (4)")
    test.add_argument("--json", type=Path, metavar="FILE", help="write the report here too")
    test.add_argument("--screenshot", type=Path, metavar="FILE", help="picture of the window")
    found = parser.parse_args(arguments)
    if not found.self_test:
        for name in ("tabs", "json", "screenshot"):
            if getattr(found, name) is not None:
                parser.error(f"--{name} goes with --self-test")
    elif found.data_dir is not None:
        parser.error("--self-test uses a temporary profile, so --data-dir makes no sense")
    if found.trace is not None:
        for name in ("model", "models_dir", "self_test"):
            if getattr(found, name):
                option = name.replace("_", "-")
                parser.error(f"--trace opens a recording without an engine, so --{option} is void")
    tabs = 4 if found.tabs is None else found.tabs
    if not 2 <= tabs <= 32:
        parser.error(f"--tabs {tabs}: 2 to 32")
    return Options(
        data_dir=_absolute(found.data_dir),
        models_dir=_absolute(found.models_dir),
        model=None if found.model is None else model_of(str(_absolute(Path(found.model)))),
        self_test=found.self_test,
        tabs=tabs,
        json_file=_absolute(found.json),
        screenshot=_absolute(found.screenshot),
        trace=_absolute(found.trace),
    )


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.expanduser().absolute()
