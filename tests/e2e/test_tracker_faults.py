"""Training does not depend on wandb: logged out, or its service killed."""

import os
import signal
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import results
from tests.e2e.kill_harness import until

pytestmark = pytest.mark.slow
SCRIPT = str(REPOSITORY / "scripts" / "pretrain.py")
OFFLINE = ["tracker=wandb", "tracker.mode=offline"]


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


def test_a_run_outlives_its_service(server, arguments, tmp_path):
    longer = [*arguments, "training.steps=200", "training.checkpoint_every=100"]
    server.finish(SCRIPT, [*longer, f"runtime.runs_dir={tmp_path}/calm"], tmp_path)
    child = server.start(SCRIPT, [*longer, *OFFLINE], tmp_path)
    until(lambda: list(tmp_path.glob("runs/*/*/metrics.jsonl")))
    (service,) = services(child)
    os.kill(service, signal.SIGKILL)
    code, printed = server.ended(tmp_path)
    assert code == 0, printed
    assert printed.count("wandb failed") == 1, printed
    (ours,), (theirs,) = (list(tmp_path.glob(f"{runs}/pretrain/*")) for runs in ("runs", "calm"))
    assert (ours / "summary.json").exists()
    assert results(ours) == results(theirs)


def test_without_a_key_it_goes_on_offline(server, arguments, tmp_path):
    nobody = {name: str(tmp_path) for name in ("HOME", "WANDB_CONFIG_DIR")}
    nobody |= {"NETRC": str(tmp_path / "netrc"), "WANDB_API_KEY": None, "WANDB_MODE": None}
    server.start(
        SCRIPT, [*arguments, "tracker=wandb", "tracker.mode=online"], tmp_path, environment=nobody
    )
    code, printed = server.ended(tmp_path)
    assert code == 0, printed
    (line,) = [line for line in printed.splitlines() if "wandb" in line]
    (offline,) = tmp_path.glob("runs/*/*/wandb/offline-run-*/run-*.wandb")
    place = offline.parent.relative_to(tmp_path)
    assert line == (
        f"wandb is offline (it could not go online: UsageError): wandb sync {place} sends this run later"
    )
    assert offline.stat().st_size > 0
