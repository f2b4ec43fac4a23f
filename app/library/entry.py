"""One model of the library, as far as it is known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from app.markdown_inline import visible_text
from engine.api.errors import ErrorInfo, ModelPartsMissingError
from engine.api.model_description import ModelDescription
from engine.api.model_files import ModelIdentity, PartName

STARTER_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
"""The file of the starter model in the model folder."""
STARTER_NAME = "SmolLM2-135M-Instruct"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """``folder``: the watched folder that it was found in, empty if it was opened by its path.

    ``exists``: false of a file that is gone, or of the starter model that was not fetched yet.
    ``description`` and ``error``: what the engine said of it, both None until it has.
    """

    path: str
    folder: str
    identity: ModelIdentity
    exists: bool = True
    is_starter: bool = False
    description: ModelDescription | None = None
    error: ErrorInfo | None = None

    @property
    def name(self) -> str:
        """The model's own name, else that of its folder or file, or of all its parts."""
        if self.description is not None and self.description.name:
            return self.description.name
        part = PartName.of(self.file_name)
        name = self.file_name if part is None else part.whole
        return STARTER_NAME if self.is_starter else visible_text(name)

    @property
    def file_name(self) -> str:
        """The last part of its path."""
        return Path(self.path).name

    @property
    def num_parts(self) -> int:
        """Files that it should lie in: 1, also of a folder, but for a GGUF in several parts."""
        part = PartName.of(self.file_name)
        return 1 if part is None else part.count

    @property
    def is_incomplete(self) -> bool:
        """Whether some of its parts are not there."""
        return self.error is not None and self.error.code == ModelPartsMissingError.code

    @property
    def weights_bytes(self) -> int:
        """What it would take in memory, roughly as long as it is not described. Bytes."""
        return (
            self.identity.file_bytes if self.description is None else self.description.weights_bytes
        )

    def matches(self, words: list[str]) -> bool:
        """Whether what is known of it has all of ``words`` (in lower case)."""
        found = [self.name, self.path]
        if self.description is not None:
            about = self.description
            found += [about.family, about.architecture, about.quantization, about.license]
        said = " ".join(found).lower()
        return all(word in said for word in words)
