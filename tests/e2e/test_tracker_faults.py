"""Training does not depend on wandb: logged out, or its service killed."""

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import results, small_run
from tests.scripts import Script, run_script, until

pytestmark = pytest.mark.slow


def services(parent: int) -> list[int]:
    """Return wandb's processes among the children of one."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            command = (entry / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if int(after_name[1]) == parent and b"wandb-core" in command:
            found.append(int(entry.name))
    return found


def test_a_run_outlives_its_service(arguments, tmp_path):
    longer = [*arguments, "training.steps=200", "training.checkpoint_every=100"]
    script = Script("pretrain", *longer, "tracker=wandb", "tracker.mode=offline", cwd=tmp_path)
    until(lambda: list(tmp_path.glob("runs/*/*/metrics.jsonl")))
    (service,) = services(script.process.pid)
    os.kill(service, signal.SIGKILL)
    done = script.end()
    assert done.returncode == 0 and (done.stdout + done.stderr).count("wandb failed") == 1, done
    _, calm = small_run(longer, runs="calm")
    (ours,) = (tmp_path / "runs" / "pretrain").iterdir()
    assert (ours / "summary.json").exists() and results(ours) == results(calm)


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
