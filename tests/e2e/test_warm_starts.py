"""Language models that start from trained weights: of a run, or published by others."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
)

from roformer.config.attention import EluAttention
from roformer.config.build import run_id
from roformer.config.composing import compose
from roformer.data.tokenizers import WordPiece
from roformer.errors import InputError
from roformer.inference.load import load_model
from roformer.pipelines.stages import folders_of
from roformer.tasks import mlm
from tests.e2e import lm_runs, test_stages
from tests.e2e.conftest import COMMON, SMALL, small_run, weights, write_corpus
from tests.trained import CASED, CHINESE, ENTRIES, run_of, stored

VOCABULARY = WordPiece.bert([*dict.fromkeys([*ENTRIES, "[unused0]"])], True)
SIZES = {
    "vocab_size": VOCABULARY.size,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
FEW = ["training.steps=3", "training.evaluate_every=3", "schedule.warmup_steps=null"]
LEARNS_NOTHING = "optimizer.learning_rate=1e-12"


def without_sizes(words):
    return [word for word in words if not word.startswith(("model.", "data.tokenizer"))]


def published(folder, model_class=BertForMaskedLM, tokenizer=VOCABULARY, **changes):
    """Write a random BERT as `transformers` does; return its folder."""
    torch.manual_seed(0)
    sizes = SIZES | {"vocab_size": tokenizer.size} | changes
    model_class(BertConfig(**sizes)).save_pretrained(folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture
def where(corpus, tmp_path):
    return [*without_sizes(SMALL), *corpus, *FEW, f"runtime.runs_dir={tmp_path / 'runs'}"]


def config_in(run):
    return json.loads((run / "checkpoints" / "last" / "model.json").read_text())["model"]


def account(capsys):
    """Return the three lines that were printed."""
    lines = capsys.readouterr().out.splitlines()
    return [line for line in lines if line.startswith(("taken", "dropped", "drawn"))]


def test_a_published_model_is_continued_as_it_is(where, tmp_path, capsys):
    """No option repeats its sizes, positions or vocabulary, and its weights decide the run id."""
    folder = published(tmp_path / "bert")
    words = [*where, f"init_from={folder}", LEARNS_NOTHING]
    summary, run = small_run(words)
    model = config_in(run)
    sizes = [model[key] for key in ("name", "layers", "hidden_size", "heads")]
    assert sizes == ["bert", 3, 32, 4]
    assert model["position"] == {"kind": "learned", "max_positions": 40}
    assert WordPiece.load(run / "tokenizer").fingerprint == VOCABULARY.fingerprint
    theirs = load_model(folder).model.state_dict()
    for name, tensor in weights(run).items():
        torch.testing.assert_close(tensor, theirs[name], atol=1e-6, rtol=1e-4)
    assert account(capsys) == [
        f"taken: 58 weights of {folder} (bert, 3x32, learned positions)",
        "dropped: nothing",
        "drawn: nothing",
    ]
    file = folder / "model.safetensors"
    save_file({name: 2 * t for name, t in load_file(file).items()}, file, {"format": "pt"})
    assert small_run(words)[0]["run_id"] != summary["run_id"]


def test_the_heads_of_segment_pairs_are_taken(where, tmp_path, capsys):
    folder = published(tmp_path / "pairs", BertForPreTraining)
    small_run(where, f"init_from={folder}", "objective=mlm_nsp", "model=roformer")
    assert account(capsys)[1:] == [
        "dropped: bert.embeddings.position_embeddings.weight",
        "drawn: nothing",
    ]


def test_paper_warmstart_takes_a_folder_of_woberts_shape(tmp_path, capsys):
    """Type bert, learned positions, Chinese words in vocab.txt; the result is a RoFormer of these sizes."""
    folder = published(tmp_path / "wobert", tokenizer=CHINESE)
    for file in folder.glob("*token*"):
        file.unlink()
    text = tmp_path / "text.txt"
    documents = ("今天天气非常好。" * n + "中文非常好。" * (40 - n) for n in range(40))
    text.write_text("\n\n".join(documents), encoding="utf-8")
    words = [*COMMON, "recipe=paper_warmstart", "data=files", f"data.path={text}"]
    words += ["training.valid_sequences=4", f"runtime.cache_dir={tmp_path / 'cache'}"]
    words += ["schedule.warmup_steps=1", f"runtime.runs_dir={tmp_path / 'runs'}"]
    words += ["training.steps=2", "training.batch_size=4", "training.sequence_length=32"]
    _, run = small_run(words, f"init_from={folder}")
    model = config_in(run)
    assert (model["layers"], model["position"]["kind"]) == (3, "rotary")
    assert WordPiece.load(run / "tokenizer").words == "jieba"
    assert account(capsys)[1:] == [
        "dropped: bert.embeddings.position_embeddings.weight",
        "drawn: nothing",
    ]


def test_the_first_stage_starts_from_a_published_model(corpus, tmp_path):
    folder = published(tmp_path / "bert", max_position_embeddings=64)
    words = [*without_sizes(test_stages.SMALL), *corpus, f"runtime.runs_dir={tmp_path / 'runs'}"]
    words.append(f"init_from={folder}")
    stages = [test_stages.FIRST, test_stages.FRESH]
    runs = test_stages.run(words, *stages)
    config = compose("stages", [*words, f"stages=[{','.join(stages)}]"])
    assert runs == folders_of(config)
    assert [config_in(run)["layers"] for run in runs] == [3, 3]
    first, second = ((run / "config.yaml").read_text() for run in runs)
    assert "init_digest: " in first and "init_digest" not in second


LEARNED = ["model/position=learned", "model.position.max_positions=64"]
SCALED = [f"model.position.scaling.{key}" for key in ("kind=yarn", "factor=2", "trained_length=16")]


@pytest.mark.parametrize(
    ("pipeline", "chosen", "drawn"),
    [
        ("pretrain", [], "nothing"),
        ("pretrain", SCALED, "nothing"),
        ("clm", LEARNED, "position.table"),
    ],
)
def test_a_run_is_continued_on_other_text(pipeline, chosen, drawn, corpus, tmp_path, capsys):
    """The run keeps its sizes and vocabulary; its positions may be swapped or scaled."""
    words = [*corpus, f"runtime.runs_dir={tmp_path / 'runs'}"]
    kind = "causal" if pipeline == "clm" else "mlm"
    size = {"layers": 3, "hidden_size": 48, "heads": 4}
    before = run_of(tmp_path / "runs" / pipeline / "before-s0", stored(kind, **size))
    given = [f"init_from={before.name}", f"data.path={tmp_path / 'other.jsonl'}"]
    write_corpus(tmp_path / "other.jsonl", 150)
    words = [*without_sizes(lm_runs.SMALL["clm"]), *words, *FEW]
    _, run = lm_runs.run_in_process(pipeline, words, *given, *chosen)
    model, told = config_in(run), account(capsys)
    assert {key: model[key] for key in size} == size
    assert model["position"]["kind"] == ("learned" if chosen == LEARNED else "rotary")
    assert told[1:] == ["dropped: nothing", f"drawn: {drawn}"]
    loaded = [WordPiece.load(each / "tokenizer").fingerprint for each in (run, before)]
    assert loaded[0] == loaded[1]


def test_the_id_of_a_run_is_known_before_the_weights_that_it_starts_from(where, tmp_path):
    """A study lists the ids of its runs before any run is trained."""
    words = [*where, "model.hidden_size=48", "model.position.base=500", "init_from=before-s0"]

    def planned():
        return run_id(compose("pretrain", words))

    first = planned()
    config = compose("pretrain", words[:-1]).model
    changes = {key: getattr(config, key) for key in ("layers", "hidden_size", "heads")}
    changes["intermediate_size"] = config.intermediate_size
    run_of(tmp_path / "runs" / "pretrain" / "before-s0", stored("mlm", config.position, **changes))
    assert planned() == first
    assert compose("pretrain", [*where, "init_from=before-s0"]).model.hidden_size == 48


def linear(folder):
    run_of(folder, stored(attention=EluAttention(), attention_dropout=0.0))


BAD = {
    "size": (published, ["model/size=base"], "layers is 3 there but 12 here"),
    "one size": (published, ["model.heads=2"], "heads is 4 there but 2 here: leave this out"),
    "causal positions": (published, ["model/position=xpos"], "is only for causal models"),
    "position of linear attention": (linear, ["model/position=alibi"], "no matrix of logits"),
    "vocabulary": (
        published,
        ["data.tokenizer.source=cased", "data.tokenizer.lowercase=false"],
        r"another vocabulary \(.* entries\) than .*: set data.tokenizer.source=init_from",
    ),
    "vocabulary of a run": (
        lambda folder: run_of(folder, stored()),
        ["data.tokenizer.source=cased", "data.tokenizer.lowercase=false"],
        "set data.tokenizer.source=.*/start/tokenizer",
    ),
    "trained vocabulary": (
        published,
        ["data.tokenizer.vocab_size=999"],
        "brings its own: leave it",
    ),
    "moments": (
        published,
        ["keep_moments=true"],
        "has no moments of AdamW: set keep_moments=false",
    ),
}


@pytest.mark.parametrize(("make", "words", "message"), BAD.values(), ids=BAD)
def test_a_start_that_does_not_fit_is_one_line(make, words, message, where, tmp_path, monkeypatch):
    """Before the text is read."""
    monkeypatch.setattr(mlm, "prepare_text", None)
    monkeypatch.chdir(tmp_path)
    CASED.save(tmp_path / "cased")
    make(tmp_path / "start")
    with pytest.raises(InputError, match=message) as refusal:
        small_run(where, f"init_from={tmp_path / 'start'}", *words)
    assert "\n" not in str(refusal.value)


def test_a_causal_model_does_not_start_from_an_encoder_or_from_bytes(corpus, tmp_path):
    words = [*lm_runs.SMALL["clm"], *corpus, f"runtime.runs_dir={tmp_path / 'runs'}"]
    folder = published(tmp_path / "bert")
    with pytest.raises(
        InputError, match=r"masked language model, .*: give a run under .*runs/clm/"
    ):
        lm_runs.run_in_process("clm", words, f"init_from={folder}")


def test_an_equal_vocabulary_may_be_given(where, tmp_path):
    folder = published(tmp_path / "bert")
    VOCABULARY.save(tmp_path / "vocabulary")
    given = f"data.tokenizer.source={tmp_path / 'vocabulary' / 'vocab.txt'}"
    _, run = small_run(where, f"init_from={folder}", given)
    assert WordPiece.load(run / "tokenizer").fingerprint == VOCABULARY.fingerprint


def test_keys_of_weights_need_weights(where):
    for word in ("data.tokenizer.source=init_from", "init_revision=main"):
        with pytest.raises(InputError, match="set init_from"):
            compose("pretrain", [*where, word])
