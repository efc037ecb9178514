"""A mistake on the command line is one line with the key, the value and what is allowed."""

import pytest

from roformer.errors import InputError
from tests.conf.composed import config
from tests.conf.test_composing import SCALING, YARN

DYNAMIC = f"{SCALING}.kind=dynamic_ntk {SCALING}.factor=2 {SCALING}.trained_length=100"
NTK = f"{SCALING}.kind=ntk {SCALING}.factor=4"
PERFORMER = "model/attention=performer model.attention_dropout=0"
STAGE = "sequence_length:32,batch_size:8,steps:6,optimizer:restart"
MISTAKES = {
    "pretrain": {
        "model.position.bse=1": "^model.position.bse: unknown key; valid keys here: base, absolute",
        "model/position=xpos": "only for causal models",
        "model/position=learned model.position.absolute=sinusoidal": "is absolute itself",
        "model/position=none model.position.absolute=learned": "choose model/position=learned",
        "model/position=tupe model.position.absolute=learned": "out of the embeddings on purpose",
        "model.position.absolute_positions=600": "set both or neither",
        "model.position.absolute=learned training.sequence_length=1024": "absolute_positions=512",
        "model=gpt": "model=gpt: no such option; choose one of bert, roformer",
        "data=files": "^data.path has no value: give data.path=",
        "data=hub data.sources=[{path:glue,revision:null}]": "^data.sources.0.path: .* match pattern",
        "data=hub data.sources=[{path:a/b,revison:null}]": "^data.sources.0.revision has no value",
        "training.steps=many": "^training.steps: give a whole number, not 'many'$",
        "model.heads=3": "^model: hidden_size=256 is not divisible by heads=3",
        f"{SCALING}.kind=longrope": "scaling.kind=longrope: choose one of none, .*, yarn$",
        f"{SCALING}.kind=linear": "^model.position.scaling.factor has no value: give model",
        f"{SCALING}.factor=4": "scaling.factor: unknown key; valid keys here: kind$",
        f"{YARN} {SCALING}.beta_slow=40": "beta_fast=32.0 must be above beta_slow=40",
        f"{YARN} {SCALING}.trained_length=6": "too short for beta_slow=1.0: .* 6.3",
        f"{NTK} model.position.fraction=0.03125": "needs two of them",
        "model.position.fraction=0.33": "of 64 dimensions is 21: change",
        "model.position.fraction=0.001": "rotates nothing",
        "model/position=t5 model.position.max_distance=8": "above a quarter",
        "model/position=sinusoidal model.hidden_size=255 model.heads=3": "even size, not 255",
        "model/position=learned training.sequence_length=1024": (
            "beyond the learned table of model.position.max_positions=512.*rotary, which has no table"
        ),
        "model/attention=elu model.attention_dropout=0.1": "no probabilities to drop: set model.",
        f"{PERFORMER} model/position=t5": "no matrix of logits for model/position=t5",
        f"{PERFORMER} {YARN}": "yarn sharpens the softmax",
        f"{PERFORMER} model.position.rotate_values=true": "rotate_values=true needs model/attention=softmax",
        f"{YARN} model.position.rotate_values=true": "a scaling other than yarn",
        "model.block=roformer_v2 model.embedding_size=64": "leave embedding_size=64 out",
        f"{PERFORMER} model.attention.features=265": "of 265 dimensions is 265: .* it is even",
        f"{PERFORMER} training.documents=isolate": "choose training.documents=cross",
        "model/position=tupe training.documents=isolate": "set model.position.untie_cls=false",
        "objective=mlm_nsp training.documents=isolate": "choose training.documents=cross",
        "objective=mlm_sop model.token_types=1": "needs model.token_types=2",
        "training.keep_at=[600,601]": r"^training: keep_at=\[601\]: a run of steps=600 has no such",
        "resume=maybe": "^resume: give auto, true or false, not 'maybe'$",
        "optimizer.betas=[0.9]": r"^optimizer.betas=\[0.9\] has too few values$",
        "seed=[0,1]": (
            r"^seed: give one value, not \[0, 1\]; --multirun seed=0,1 trains one run for each$"
        ),
        "data.path=corpus/": "^data.path: unknown key; .*; data.path needs data=files$",
        "lr=1e-3": r"^lr: unknown key; .*; did you mean optimizer.learning_rate\?$",
        "dropout=0.1": r"; did you mean model.hidden_dropout or model.attention_dropout\?$",
        "num_train_epochs=3": r"; did you mean training.steps\?$",
        "position=alibi": r"^position=alibi: did you mean model/position=alibi\?$",
        "model.position=rotary": "write model/position=rotary, one of rotary, alibi",
        "masking.mask=1.0": "^masking: mask=1.0 and random=0.1 add up to more than 1",
        "schedule.warmup_steps=9": "not both",
        "schedule.kind=inverse_sqrt schedule.warmup_fraction=null": "needs a warm-up",
        "schedule.warmup_fraction=null schedule.warmup_steps=600": "leaves nothing",
        "schedule.total_steps=300": "schedule.total_steps=300 ends before step 600",
        "training.precision=fp16 runtime.device=cpu": "needs a GPU",
        "keep_moments=true": "keep_moments=true needs the run that has them: set init_from",
    },
    "glue": {
        "seed=[0,1,0]": "^seed: .*0 occurs more than once: give each value once",
        "task.mrpc.metrics=[accurcy]": "^task.mrpc.metrics.0: give accuracy, f1",
        "task.mrpc.files.lable=3": "^task.mrpc.files.lable: unknown key; valid keys here: label, ",
        "task.mrpc.metrics=[pearson]": "metrics pearson do not fit a classification",
        "task.mnli.metrics=[f1]": "f1 is the score of the second of two labels",
        "task.stsb.labels=[a,b]": "one of the two",
        "task.mrpc.files.texts=[a]": "differ in number",
        "task.mrpc.labels=[bad,bad]": "^task.mrpc.labels: bad occurs more than once: give each",
        "task.mrpc.files.texts=[q,Quality]": r"^task.mrpc.files: label=Quality is one of texts=\[",
        "task.mrpc.texts=[a,label]": "^task.mrpc: texts: label is the column of the labels on the H",
        "task.mrpc.labels=[false,a]": "^task.mrpc.labels.0: false is not text: put numbers, and words",
    },
    "scm": {
        "model.token_types=1 pair.token_types=segments": "choose pair.token_types=zeros",
        "preset=bert_512 training.max_length=513": (
            "training.max_length=513 is beyond the learned table of .*max_positions=512"
        ),
    },
    "clm": {
        "training.longer=[2,3]": r"longer=\[2, 3\]: each must divide the largest",
        "training.valid_sequences=3": "do not hold one of 4 times the length",
        "model/position=t5 model.position.max_distance=16": "above half of position.buckets=32",
        DYNAMIC: "dynamic_ntk rotates all keys anew as a text grows",
        "model/position=tupe": "untie_cls=false",
    },
    "stages": {
        "recipe=smoke stages=[]": "at least 1 item",
        f"recipe=smoke stages=[{{{STAGE}}}]": "^stages.0.schedule has no value",
        f"recipe=smoke stages=[{{{STAGE},schedule:go}}]": "^stages.0.schedule: Input should be 'continue'",
        f"recipe=smoke stages=[{{{STAGE},schedule:continue,optimizer:keep}}]": (
            "^stage 1: optimizer=keep, but no stage comes before"
        ),
        f"recipe=smoke stages=[{{{STAGE},schedule:continue,learning_rate:1}}]": (
            "^stage 1: learning_rate is the peak of a new sch"
        ),
        f"recipe=smoke stages=[{{{STAGE},schedule:{{kind:linear,warmup_steps:6}}}}]": (
            "^stage 1: schedule.warmup_steps=6 leaves nothing of the training's 6 steps"
        ),
        # Before the stages in front of it are trained for days.
        "recipe=paper model=wobert": "^stage 2: training.sequence_length=1536 is beyond the",
    },
    "charlm": {
        "data.valid_fraction=0.6 data.test_fraction=0.4": "leave nothing to train",
    },
    "wmt": {
        "training.average=500": "average=500 checkpoints, one in 10 steps, are more than",
        "training.checkpoint_every=11": "is no multiple of checkpoint_every=11, so the mean of",
        "model/position=learned data.filter.max_length=600": (
            "max_length=600, with the end of the sentence, is beyond the learned table of model"
        ),
        "training.bucket_tokens=64": "does not hold one pair of data.filter.max_length=100",
        "training.tokens_per_update=4200 data.filter.max_length=3000": (
            "tokens_per_update=4200 in buckets of at most 2048 does not hold one pair"
        ),
        DYNAMIC: "dynamic_ntk rotates all keys anew as a text grows",
    },
}
ALL = [(pipeline, *mistake) for pipeline, some in MISTAKES.items() for mistake in some.items()]


@pytest.mark.parametrize(("pipeline", "words", "message"), ALL)
def test_a_mistake_is_told_in_one_line(pipeline, words, message):
    with pytest.raises(InputError, match=message) as refusal:
        config(words, pipeline)
    assert "\n" not in str(refusal.value)
