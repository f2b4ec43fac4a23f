"""``python -m app``"""

import os
import sys

from app.frozen import is_frozen, restore_library_path, trust_the_system
from app.helper_process import run_if_helper
from app.standard_streams import restore_standard_streams


def _run() -> int:
    restore_standard_streams()
    run_if_helper()
    restore_library_path(os.environ)
    trust_the_system(os.environ)
    try:
        from app.plain_imports import restore_plain_imports

        restore_plain_imports()
        from app.main import main
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and not is_frozen():
            raise
        from app.early_check import explain_import_error

        return explain_import_error(error)
    return main()


if __name__ == "__main__":
    sys.exit(_run())
