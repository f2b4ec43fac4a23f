"""The real starter model for tests: from the model folder, fetched if it is absent."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from app.paths import models_dir
from engine.api.errors import ModelFetchError
from engine.loading import starter_model
from engine.loading.model_folder import LoadedFiles, open_model


@cache
def starter_gguf() -> Path:
    """The GGUF file. Without a network the test is skipped, except where CI is set."""
    try:
        return starter_model.fetch(models_dir())
    except ModelFetchError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(f"the starter model is not there and cannot be fetched: {error}")


@cache
def starter_files() -> LoadedFiles:
    """The starter model, expanded."""
    return open_model(starter_gguf(), models_dir())
