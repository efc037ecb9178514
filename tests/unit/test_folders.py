"""Folders that several processes want at once."""

import threading
import time

from roformer.data.folders import one_at_a_time


def test_who_has_to_wait_says_so_and_then_has_its_turn(tmp_path, capsys):
    folder, order = tmp_path / "made", []

    def second():
        with one_at_a_time(folder, progress=True):
            order.append("second")

    other = threading.Thread(target=second)
    said = ""
    with one_at_a_time(folder, progress=True):
        other.start()
        deadline = time.monotonic() + 60
        while not said and time.monotonic() < deadline:
            said = capsys.readouterr().err
            time.sleep(0.01)
        order.append("first")
    other.join()
    assert said == f"waiting: another process is making {folder}\n"
    assert order == ["first", "second"]
