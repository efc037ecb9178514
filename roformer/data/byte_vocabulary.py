"""The vocabulary of models that read bytes."""

from __future__ import annotations

import json
from pathlib import Path


class ByteVocabulary:
    """What stands where a tokenizer would: 256 entries, each its own id."""

    size = 256
    fingerprint = "bytes"
    FILE = "bytes.json"

    def save(self, folder: Path) -> None:
        """Write the file by which a run's folder says that it reads bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {"vocabulary": self.fingerprint, "size": self.size}
        (folder / self.FILE).write_text(json.dumps(content) + "\n", encoding="utf-8")
