"""The paper's recipes have the paper's numbers; a baseline differs only in what it is named for."""

import pytest

from tests.conf.composed import config, differing

BASE = "model.layers=12 model.hidden_size=768 model.heads=12"
SHAW = "model=transformer model/position=shaw_big"
PAPERS = [
    # RoFormer, section 4.2
    (
        "pretrain",
        "recipe=paper data=hub",
        f"{BASE} training={{batch_size:64,sequence_length:512,steps:100000}} "
        "model.intermediate_size=3072 optimizer.learning_rate=1e-5 data.valid_fraction=0.2",
    ),
    # The authors' script: batch 64 with 4 accumulated; lr_schedule={20000: 1} counts micro-batches.
    (
        "pretrain",
        "recipe=paper_warmstart init_from=x",
        "training.batch_size=256 schedule={kind:constant,warmup_steps:5000,initial_ratio:0.0} "
        "optimizer={learning_rate:1e-5,weight_decay:0.01,eps:1e-6,clip_norm:null}",
    ),
    ("pretrain", "data=chinese_builtin", "data.tokenizer.words=jieba"),
    ("pretrain", "data=chinese_hub", "data.tokenizer.words=jieba"),
    # Section 4.3
    (
        "glue",
        "recipe=paper init_from=x data=hub",
        "training={epochs:3,max_length:512,batch_size:32,small_task_epochs:null} "
        "optimizer.learning_rate=[2e-5,3e-5,4e-5,5e-5] seed=[0,1,2,3,4] data.path=nyu-mll/glue "
        f"{BASE}",
    ),
    ("glue", "recipe=stable init_from=x", "schedule.warmup_fraction=0.1"),
    # Tables 3 and 5
    ("scm", "preset=bert_512", "tokenizer.words=none training.max_length=512 model.name=bert"),
    ("scm", "preset=wobert_512", "tokenizer.words=jieba training.max_length=512 model.name=wobert"),
    ("scm", "preset=roformer_1024", "tokenizer.words=jieba training.max_length=1024"),
    # The authors' script
    (
        "scm",
        "recipe=paper init_from=x data=files data.path=x",
        "training={loss:bce,batch_size:2,max_length:1024,epochs:10} optimizer.learning_rate=6e-6 "
        "schedule.kind=constant data.split=shipped pair={pooling:mean,head:none,token_types:zeros} "
        f"{BASE}",
    ),
    # Section 4.1, and Vaswani et al. 2017, section 5 and table 3: 1,500 steps of 0.4 s are ten minutes
    (
        "wmt",
        "recipe=paper data=hub",
        "model.layers=6 model.decoder_layers=null model.hidden_size=512 model.heads=8 "
        "model.intermediate_size=2048 model.norm=post model.activation=relu model.hidden_dropout=0.1 "
        "optimizer.betas=[0.9,0.98] "
        "training={steps:100000,label_smoothing:0.1,average:5,checkpoint_every:1250,bucket_tokens:3125} "
        "training.tokens_per_update=25000 optimizer.learning_rate=5e-4 data.tokenizer.merges=37000 "
        "schedule={kind:inverse_sqrt,warmup_steps:4000,initial_ratio:2e-4} "
        "search={beam:4,length_penalty:fairseq,alpha:0.6} "
        "data.path=wmt/wmt14 data.name=de-en data.test_lines=3003",
    ),
    # Vaswani's big model: 20 checkpoints of ten minutes, at 1.0 s a step, span 12,000 steps.
    (
        "wmt",
        f"recipe=paper_big data=hub {SHAW}",
        "training={checkpoint_every:600,average:20,steps:300000} model.hidden_dropout=0.3 "
        "model.hidden_size=1024 model.heads=16 model.intermediate_size=4096 "
        "schedule={kind:inverse_sqrt,warmup_steps:4000,initial_ratio:0.0} "
        "search={beam:4,length_penalty:gnmt,alpha:0.6}",
    ),
    # Shaw et al. 2018, section 4.1: the base model that has 38.2 and 38.7 BLEU on EN-FR
    (
        "wmt",
        "recipe=paper_enfr data=hub model/position=shaw_base",
        "model.layers=6 model.hidden_size=512 model.heads=8 model.intermediate_size=1024 "
        "model.hidden_dropout=0.1 training={steps:100000,average:1,tokens_per_update:25000} "
        "model.position.clip=16 "
        "schedule={kind:inverse_sqrt,warmup_steps:4000,initial_ratio:0.0} data.name=fr-en "
        "search={beam:4,length_penalty:gnmt,alpha:0.6} data.target_language=fr",
    ),
    # Section 4.4
    (
        "charlm",
        "recipe=paper data=enwik8",
        f"{BASE} model.norm=pre training={{batch_size:128,sequence_length:1024}} "
        "optimizer.learning_rate=1e-4 data.valid_fraction=0.05 data.test_fraction=0.05 data.max_bytes=null",
    ),
]


@pytest.mark.parametrize(("pipeline", "words", "numbers"), PAPERS)
def test_to_set_the_numbers_of_a_paper_changes_nothing_of_its_recipe(pipeline, words, numbers):
    assert config(words, pipeline) == config(f"{words} {numbers}", pipeline)


def test_numbers_that_a_command_line_cannot_say():
    headlines = {name: task.metrics[0] for name, task in config("recipe=mini", "glue").task.items()}
    assert headlines == dict.fromkeys(("sst2", "qnli", "mnli"), "accuracy") | {
        **dict.fromkeys(("mrpc", "qqp"), "f1"),
        "stsb": "spearman",
    }
    for recipe, width in (("paper_enfr", 512), ("paper_big", 1024)):
        rate = config(f"recipe={recipe} data=hub", "wmt").optimizer.learning_rate
        assert rate == pytest.approx((width * 4000) ** -0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("pipeline", "one", "other", "expected"),
    [
        ("pretrain", "recipe=paper", "recipe=paper_tuned", {"recipe", "optimizer", "schedule"}),
        ("pretrain", "model=roformer", "model=bert", {"model"}),
        ("pretrain", "model=wobert", "model=bert", {"model"}),
        ("wmt", "model=roformer", "model=transformer", {"model"}),
        ("clm", "model/position=rotary", "model/position=learned", {"model"}),
        ("glue", "recipe=paper init_from=x", "recipe=stable init_from=x", {"recipe", "training"}),
        (
            "wmt",
            "recipe=paper data=hub",
            "recipe=paper_big data=hub",
            {"recipe", "model", "training", "optimizer", "schedule", "search"},
        ),
        ("scm", "preset=roformer_512", "preset=roformer_1024", {"training"}),
        ("scm", "preset=wobert_512", "preset=roformer_512", {"model"}),
        ("scm", "preset=bert_512", "preset=wobert_512", {"model", "tokenizer"}),
    ],
)
def test_two_configurations_differ_in_one_thing_alone(pipeline, one, other, expected):
    ours, theirs = config(one, pipeline), config(other, pipeline)
    assert differing(ours, theirs) == expected
    if expected == {"model"}:
        assert differing(ours.model, theirs.model) <= {"name", "position"}


def test_both_corpora_are_one_encyclopedia():
    chinese, english = (config(f"data={data}").data.sources[0] for data in ("chinese_hub", "hub"))
    assert differing(chinese, english) == {"name"}
    assert (chinese.name, english.name) == ("20231101.zh", "20231101.en")
    assert english.path == "wikimedia/wikipedia"
