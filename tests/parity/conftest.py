"""A Hub on this machine, with nothing in the cache."""

import huggingface_hub
import pytest

from tests.hub.server import fake_hub


@pytest.fixture
def hub(tmp_path, monkeypatch):
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with fake_hub() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        address = f"{hub.endpoint}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address)
        yield hub
