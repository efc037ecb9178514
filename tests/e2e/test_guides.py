"""The Python snippets of the guides and the README run, and so do the examples."""

import io
import json
import random
import re
import runpy
import sys
from types import SimpleNamespace

import pytest

import roformer
from roformer.config.position import Learned
from roformer.inference.export import export
from roformer.nn.position import base
from tests.conftest import REPOSITORY
from tests.e2e import lm_runs, test_glue, wmt_runs
from tests.e2e.conftest import places
from tests.trained import run_of, stored

PAGES = [REPOSITORY / "README.md", *sorted(REPOSITORY.glob("docs/*.md"))]
PAGES.remove(REPOSITORY / "docs" / "rope.md")  # one program in cells: tests/repo/test_rope_page.py
FEW = [f"training.{key}" for key in ("steps=6", "evaluate_every=6", "checkpoint_every=2")]
PLACE = re.compile(r"runs/(pretrain|glue|wmt|clm)/[\w-]+")


@pytest.fixture(scope="module")
def runs(pretrained, corpus, tmp_path_factory):
    """Return a small run of each pipeline, by its name."""
    folder = tmp_path_factory.mktemp("runs")
    where = places(folder)
    (glue,) = test_glue.run([*test_glue.SMALL, "task=sst2", "training.epochs=1", *where])
    wmt_runs.write_parallel_text(folder / "parallel")
    parallel = ["model=transformer", f"data.path={folder / 'parallel'}", *where]
    _, wmt = wmt_runs.small_run([*wmt_runs.SMALL, *parallel], *FEW, "schedule.warmup_steps=2")
    _, clm = lm_runs.small_run("clm", [*corpus, where[0]], *FEW)
    return {"pretrain": pretrained, "glue": glue, "wmt": wmt, "clm": clm}


@pytest.mark.parametrize(
    ("pipeline", "kind"),
    [
        ("pretrain", "roformer"),
        ("glue", "jina_embeddings_v3"),
        ("wmt", "pegasus"),
        ("clm", "gpt_neox"),
    ],
)
def test_a_trained_run_is_exported_with_what_was_measured_of_it(runs, tmp_path, pipeline, kind):
    """The records that real runs leave are enough."""
    run = runs[pipeline]
    written = export(run, tmp_path / "out")
    assert written.kind == kind
    summary = json.loads((run / "summary.json").read_text())
    card = (written.folder / "README.md").read_text()
    for name, value in summary["metrics"].items():
        best = summary["best"]["metrics"]
        cell = json.dumps(best[name]) if name in best else ""
        assert f"| {name} | {cell} | {json.dumps(value)} |" in card


def snippets():
    for page in PAGES:
        for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.S)):
            yield pytest.param(code, id=f"{page.stem}-{number}")


@pytest.mark.parametrize("code", snippets())
def test_snippets_run(code, runs, tmp_path, monkeypatch, capsys):
    """A snippet that names a run gets one of the tests' runs; it prints output and no complaint."""
    file = tmp_path / "snippet.py"  # a class asks for its module's file
    file.write_text(PLACE.sub(lambda match: str(runs[match[1]]), code))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(base, "ENCODINGS", base.ENCODINGS.copy())  # one registers its own
    capsys.readouterr()
    runpy.run_path(str(file), run_name="snippet")
    printed = capsys.readouterr()
    assert printed.err == "" and bool(printed.out) == ("print(" in code)


def call(monkeypatch, name, *arguments):
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, arguments)])
    runpy.run_path(str(REPOSITORY / "examples" / f"{name}.py"), run_name="__main__")


def test_fill_mask(runs, monkeypatch, capsys):
    call(monkeypatch, "fill_mask", runs["pretrain"], "ba bel [MASK] bor [MASK]", "--top", 3)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ba bel [MASK] bor [MASK]"
    assert [line.split(":")[0] for line in lines[1:]] == ["  [MASK] 1", "  [MASK] 2"]
    assert all(line.count("%") == 3 for line in lines[1:])


def test_compare_converted(tmp_path, monkeypatch, capsys):
    """A model has no error against itself; only rotary positions are read beyond the original's 64."""
    bert = run_of(tmp_path / "bert", stored(position=Learned(max_positions=64), name="bert"))
    rotary = run_of(tmp_path / "rotary", stored())
    words = ["the cat sat on the mat", "on the mat sat the cat", "a cat"]
    (tmp_path / "pairs.tsv").write_text(
        "sentence1\tsentence2\tscore\n"
        + "".join(f"{words[0]}\t{w}\t{-n}\n" for n, w in enumerate(words))
    )
    (tmp_path / "texts.txt").write_text("\n".join(" ".join(w.split() * 60) for w in words))
    given = ["--pairs", tmp_path / "pairs.tsv", "--texts", tmp_path / "texts.txt"]
    given += ["--separator", "line_break", "--lengths", 32, 96]
    call(monkeypatch, "compare_converted", bert, bert, *given[:-1])
    assert "32 | converted | 0.000 | " in capsys.readouterr().out
    call(monkeypatch, "compare_converted", bert, rotary, *given)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "original: Spearman 1.000 on 3 pairs"
    assert [line.split(" | ")[:2] for line in lines[4:]] == [
        ["32", "original"],
        ["32", "converted"],
        *(
            ["96", f"converted{way}"]
            for way in ("", ", linear", ", ntk", ", dynamic_ntk", ", yarn")
        ),
    ]
    for mistake, line in (
        ([*given, 999], "a search needs two such texts"),
        (["--pairs", tmp_path / "absent.tsv"], "is no file: give a TSV"),
        ([], "nothing to compare on"),
    ):
        with pytest.raises(SystemExit):
            call(monkeypatch, "compare_converted", bert, rotary, *mistake)
        assert line in capsys.readouterr().err


@pytest.mark.slow
def test_finetune_csv(runs, tmp_path, monkeypatch, capsys):
    """The label is a word of the text, so that a few steps learn it."""
    generator = random.Random(0)
    words = ["ba", "bel", "bin", "bor", "cu", "din"]
    rows = ["text,label"]
    for number in range(400):
        text = generator.choices(words, k=5)
        text[generator.randrange(5)] = ["fa", "gor"][number % 2]
        rows.append(f"{' '.join(text)},{['fa', 'gor'][number % 2]}")
    (tmp_path / "mine.csv").write_text("\n".join(rows) + "\n")
    where = ["--output", tmp_path / "out", "--learning-rate", 1e-3, "--epochs", 4]
    call(monkeypatch, "finetune_csv", runs["pretrain"], tmp_path / "mine.csv", *where)
    printed = capsys.readouterr().out
    told = re.search(r"accuracy ([\d.]+) on 40 held-out rows", printed)
    assert float(told[1]) > 0.9
    place = re.search(r'roformer\.load_model\("(.*)"\) opens it', printed)[1]
    kept = roformer.load_model(place)
    right = [kept.predict(f"ba bel {word} cu din").label == word for word in ("fa", "gor")]
    assert right == [True, True]
    with pytest.raises(SystemExit):
        call(monkeypatch, "finetune_csv", runs["pretrain"], tmp_path / "mine.csv", *where)
    assert "exists: choose another --output" in capsys.readouterr().err


@pytest.mark.slow
def test_finetune_csv_takes_pairs_and_scores(runs, tmp_path, monkeypatch, capsys):
    rows = [f'"ba, {n}",bel bor,{n / 40}' for n in range(40)]
    (tmp_path / "pairs.csv").write_text("\n".join(["a,b,score", *rows]) + "\n")
    words = ["--texts", "a", "b", "--label", "score", "--regression", "--epochs", 1]
    where = ["--output", tmp_path / "größe"]
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, "ascii"))
    call(monkeypatch, "finetune_csv", runs["pretrain"], tmp_path / "pairs.csv", *words, *where)
    sys.stdout.flush()
    assert b"mean squared error" in printed.getvalue() and b"gr??e" in printed.getvalue()
    kept = roformer.load_model(tmp_path / "größe" / "model")
    assert kept.predict(("ba", "bel")).label is None


MANY = "".join(f"text {number},a\n" for number in range(12))


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("text,label\na,x\n", [], "bad.csv has 1 rows: give 10 or more"),
        ("text,label\na,x\nb,\n", [], "bad.csv:3: no label"),
        ("review,stars\na,x\n", [], "no column 'text', but review, stars: set --texts and --label"),
        ("text,label\n" + MANY, [], "bad.csv has one class, 'a': give rows of two or more"),
        (
            "text,label\n" + MANY.replace(",a", ",4") + "b,4.5\n",
            [],
            "label 4.5, a number with a fr",
        ),
        ("text,label\n" + MANY, ["--regression"], "bad.csv:2: a is no score: give a number"),
        ("text,label\n" + MANY, ["--texts", "text", "text"], "give one or two columns of texts"),
    ],
)
def test_a_csv_that_cannot_be_learnt_is_one_line(
    content, options, message, tmp_path, monkeypatch, capsys
):
    file = tmp_path / "bad.csv"
    file.write_text(content)
    with pytest.raises(SystemExit) as left:
        call(monkeypatch, "finetune_csv", "none", file, "--output", tmp_path, *options)
    error = capsys.readouterr().err
    assert left.value.code == 2 and message in error and error.count("\n") == 1


def test_a_csv_is_read_as_text_and_integers_are_classes(tmp_path):
    """No text is taken for a missing one, and no two classes for one."""
    example = runpy.run_path(str(REPOSITORY / "examples" / "finetune_csv.py"))
    texts = ["01000", "N/A", "null", "None", "nan", *"abcde"]
    classes = ["01", "1", "None", "NA", "null", "1", "1", "1", "1", "1"]
    lines = [f"{text},{label}" for text, label in zip(texts, classes, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(["text,label", *lines]))
    arguments = SimpleNamespace(
        csv=tmp_path / "a.csv", texts=["text"], label="label", regression=False
    )
    rows, labels = example["read"](arguments)
    assert [row["text"] for row in rows] == texts and labels == sorted(set(classes))


def test_swap_position(monkeypatch, capsys):
    call(monkeypatch, "swap_position")
    _, *lines = capsys.readouterr().out.splitlines()
    answers = {
        kind: (order != "none", moved != "none") for kind, order, moved in map(str.split, lines)
    }
    assert len(answers) == 13 and answers.pop("none") == (False, False)
    absolute = ("learned", "sinusoidal", "tupe")
    assert answers == {kind: (True, kind in absolute) for kind in answers}
