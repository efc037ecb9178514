"""What the export is given: bad input is told in one line, and a failure leaves nothing."""

import sys

import pytest
from safetensors import SafetensorError

from roformer.config import position as encodings
from roformer.errors import InputError
from roformer.inference import export as exporting
from roformer.inference.export import export
from scripts.export import main
from tests.data.parallel_texts import trained
from tests.e2e import exported
from tests.e2e.exported import encoder_config, masked_lm_run


def test_bad_input_is_told_in_one_line(tmp_path):
    def refused(*arguments):
        with pytest.raises(InputError) as error:
            export(*arguments)
        assert "\n" not in str(error.value)
        return str(error.value)

    assert "no such run" in refused(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "not a run's folder, it has no checkpoints" in refused(tmp_path / "empty")
    run = masked_lm_run(tmp_path / "pretrain" / "run", encoder_config())
    assert "no checkpoint averaged: choose one of best, last, step_00000008" in refused(
        run, None, "averaged"
    )
    assert "is not a run's folder" in refused(run / "checkpoints" / "last")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("kept")
    assert f"{tmp_path / 'full'} is there already and not empty" in refused(run, tmp_path / "full")
    assert (tmp_path / "full" / "mine.txt").read_text() == "kept"
    (run / "checkpoints" / "step_00000008" / "model.safetensors").write_bytes(b"cut")
    assert "no complete checkpoint" in refused(run)
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("model_card", OSError(28, "No space left on device")),
        ("save_wordpiece", SafetensorError("I/O error: No space left (os error 28)")),
    ],
    ids=["card", "weights"],
)
def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch, step, error):
    run = masked_lm_run(tmp_path / "pretrain" / "run", encoder_config())

    def full(*_, **__):
        raise error

    monkeypatch.setattr(exporting, step, full)
    with pytest.raises(OSError, match="No space left") as told:
        export(run)
    assert told.value.errno == 28
    assert list((tmp_path / "export").iterdir()) == []


def test_the_command_says_what_it_made_and_what_was_wrong(tmp_path, monkeypatch, capsys):
    run = masked_lm_run(tmp_path / "run", encoder_config(encodings.Alibi()))
    arguments = ["export.py", str(run), "--output", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", arguments)
    main()
    printed = capsys.readouterr().out
    assert f"{tmp_path / 'out'}: step_00000008 as a folder of roformer\n" in printed
    assert "transformers has no such model: no encoder there has alibi positions" in printed
    with pytest.raises(SystemExit, match="2"):
        main()
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'out'} is there already")


def test_an_empty_folder_is_filled_and_a_checkpoint_is_chosen(tmp_path):
    bpe = trained("bytes", merges=40)
    run = exported.translation_run(tmp_path / "run", encodings.Sinusoidal(), bpe, norm="pre")
    (tmp_path / "out").mkdir()
    written = export(run, tmp_path / "out", "step_00000004")
    assert written.folder == tmp_path / "out" and written.checkpoint == "step_00000004"
    assert "`step_00000004`" in (tmp_path / "out" / "README.md").read_text()
