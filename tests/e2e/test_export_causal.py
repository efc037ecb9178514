"""Causal language models as `transformers` opens them: logits, ids and texts are ours."""

import json

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM, AutoTokenizer

import roformer
from roformer.config import position as encodings
from roformer.config.attention import PerformerAttention
from roformer.config.build import plain
from roformer.config.lm import CausalConfig
from roformer.data.tokenizers import ByteVocabulary
from roformer.evaluation.sampling import Sampling
from roformer.inference.export import export
from roformer.models.causal import CausalLM
from tests.e2e.elsewhere import open_elsewhere
from tests.e2e.exported import CASED, CHINESE, NASTY, TINY, UNCASED, shaken, write_run

LENGTH = 40
GREEDY = Sampling(temperature=0.0)


def causal_run(folder, position, tokenizer=UNCASED, **changes):
    """Write a run of a causal model with random weights; without a tokenizer it reads bytes."""
    config = CausalConfig(**{**TINY, "position": position, **changes})
    vocabulary = tokenizer or ByteVocabulary()
    description = {
        "kind": "causal",
        "model": plain(config),
        "vocab_size": vocabulary.size,
        "tokenizer": vocabulary.fingerprint,
        "reads": "tokens" if tokenizer else "bytes",
        "length": LENGTH,
    }
    metrics = {"valid/loss": 3.25} if tokenizer else {"test/bits_per_byte": 2.5}
    return write_run(
        folder,
        shaken(CausalLM(config, vocabulary.size)),
        vocabulary,
        description,
        {
            "data": {"kind": "builtin" if tokenizer else "bytes_builtin"},
            "training": {"sequence_length": LENGTH, "precision": "fp32"},
        },
        {"metrics": metrics},
    )


MODELS = {
    "rotary": ({"position": encodings.Rotary()}, "gpt_neox"),
    "half": ({"position": encodings.Rotary(layout="half")}, "gpt_neox"),
    "partial": ({"position": encodings.Rotary(fraction=0.5), "tokenizer": CASED}, "gpt_neox"),
    "base": ({"position": encodings.Rotary(base=500.0), "heads": 4}, "gpt_neox"),
    "learned": ({"position": encodings.Learned(max_positions=64)}, "gpt2"),
    "sinusoidal": ({"position": encodings.Sinusoidal(scale=0.7)}, "gpt2"),
    "none": ({"position": encodings.NoPosition()}, "gpt2"),
    "bytes": ({"position": encodings.Rotary(), "tokenizer": None}, "gpt_neox"),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return (run, its export) by name."""
    found = {}
    for name, (settings, kind) in MODELS.items():
        run = causal_run(tmp_path_factory.mktemp(name) / "clm" / "run", **settings)
        written = export(run)
        assert written.kind == kind and written.checkpoint == "step_00000008"
        found[name] = (run, written)
    return found


@pytest.mark.parametrize("name", MODELS)
def test_logits_are_ours(models, name):
    """Catches another layout, unpermuted heads, an output that is not tied, another GELU."""
    run, written = models[name]
    ours = roformer.load_generator(run).model
    theirs, loading = AutoModelForCausalLM.from_pretrained(written.folder, output_loading_info=True)
    assert not any(loading.values()), loading
    ids = torch.randint(
        ours.tokens.num_embeddings, (3, LENGTH), generator=torch.Generator().manual_seed(0)
    )
    with torch.no_grad():
        wanted, found = ours(ids), theirs(input_ids=ids).logits
    assert wanted.std() > 0.3
    assert ((found - wanted).abs().max() / wanted.abs().max()).item() <= 1e-5


@pytest.mark.parametrize("name", ["rotary", "partial", "bytes"])
def test_token_ids_are_ours(models, name):
    run, written = models[name]
    codec = roformer.load_generator(run).codec
    tokenizer = AutoTokenizer.from_pretrained(written.folder)
    for text in NASTY:
        if text or name != "bytes":  # of nothing our bytes make a line end, to begin with
            assert tokenizer(text)["input_ids"] == codec.encode(text), text
    assert list(tokenizer(NASTY[:1])) == ["input_ids", "attention_mask"]


@pytest.mark.parametrize("name", MODELS)
def test_greedy_texts_are_ours(models, name):
    """Through their cache, which counts positions by itself, and their decoder."""
    run, written = models[name]
    generator = roformer.load_generator(run)
    prompt, count = "the cat sat", 20
    wanted = prompt + "".join(generator.generate(prompt, GREEDY, max_tokens=count))
    model = AutoModelForCausalLM.from_pretrained(written.folder)
    tokenizer = AutoTokenizer.from_pretrained(written.folder)
    inputs = tokenizer(prompt, return_tensors="pt")
    ids = model.generate(**inputs, max_new_tokens=count, do_sample=False)[0]
    assert tokenizer.decode(ids, skip_special_tokens=True).removeprefix(" ") == wanted


@pytest.mark.slow
def test_they_open_without_our_code(models):
    """And continue a prompt as ours do, the space before the first word too."""
    chosen = [models[name] for name in ("rotary", "learned", "bytes")]
    tasks = [["text-generation", str(written.folder), ["the cat"]] for _, written in chosen]
    answers = open_elsewhere(tasks)
    for run, written in chosen:
        ((answer,),) = answers[str(written.folder)]
        continuation = roformer.load_generator(run).generate("the cat", GREEDY, max_tokens=9)
        assert answer["generated_text"] == "the cat" + "".join(continuation)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"position": encodings.Alibi()}, "alibi positions"),
        ({"position": encodings.T5Bias()}, "t5 positions"),
        ({"position": encodings.Rotary(), "norm": "post"}, "norms stand after"),
        (
            {
                "position": encodings.Rotary(),
                "attention": PerformerAttention(features=8),
                "attention_dropout": 0.0,
                "tokenizer": None,
            },
            "performer attention",
        ),
        ({"position": encodings.Rotary(), "tokenizer": CHINESE}, "cuts Chinese into words"),
    ],
    ids=["alibi", "t5", "post-norm", "performer", "chinese words"],
)
def test_what_has_no_home_is_a_folder_of_ours(tmp_path, changes, why):
    run = causal_run(tmp_path / "clm" / "run", **changes)
    written = export(run)
    assert written.kind is None and why in written.notes[0]
    assert 'roformer.load_generator("FOLDER")' in (written.folder / "README.md").read_text()
    texts = [
        "".join(roformer.load_generator(folder).generate("the cat", GREEDY, max_tokens=9))
        for folder in (run, written.folder)
    ]
    assert texts[0] == texts[1]


def test_the_card_is_the_record(models):
    for name, key, value in (("rotary", "valid/loss", 3.25), ("bytes", "test/bits_per_byte", 2.5)):
        run, written = models[name]
        card = ModelCard.load(written.folder / "README.md")
        assert card.data.pipeline_tag == "text-generation"
        assert {one.metric_type: one.metric_value for one in card.data.eval_results} == {key: value}
        assert f"| {key} | {json.dumps(value)} |" in card.text
        assert 'pipeline("text-generation"' in card.text
        assert run.name in card.text and "made by a grammar" not in card.text
