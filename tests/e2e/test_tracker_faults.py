"""Training does not depend on wandb: it may be logged out."""

import pytest

from tests.scripts import run_script

pytestmark = pytest.mark.slow


def test_without_a_key_it_goes_on_offline(arguments, tmp_path):
    nobody = {name: str(tmp_path) for name in ("HOME", "WANDB_CONFIG_DIR")}
    nobody |= {"NETRC": str(tmp_path / "netrc"), "WANDB_API_KEY": None, "WANDB_MODE": None}
    online = [*arguments, "tracker=wandb", "tracker.mode=online"]
    done = run_script("pretrain", *online, cwd=tmp_path, env=nobody)
    assert done.returncode == 0, done
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "wandb" in line]
    (offline,) = tmp_path.glob("runs/*/*/wandb/offline-run-*/run-*.wandb")
    place = offline.parent.relative_to(tmp_path)
    assert line == (
        f"wandb is offline (it could not go online: UsageError): wandb sync {place} sends this run later"
    )
    assert offline.stat().st_size > 0
