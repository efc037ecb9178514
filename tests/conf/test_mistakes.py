"""A mistake on the command line is one line with the key, the value and what is allowed."""

import pytest

from roformer.errors import InputError
from tests.conf.test_compose import NTK, SCALING, YARN, config

DYNAMIC = f"{SCALING}.kind=dynamic_ntk {SCALING}.factor=2 {SCALING}.trained_length=100"
LEARNED = "model/position=learned model/attention=softmax"
NTK, YARN = " ".join(NTK), " ".join(YARN)
TASKS = "choose one of cola, mnli, mrpc, qnli, qqp, rte, sst2, stsb"
MISTAKES = {
    "pretrain": {
        "model.position.bse=1": "model.position.bse: unknown key; valid keys here: base, fraction",
        "modle=bert": "modle: unknown key; valid keys here: model, data,",
        "model/position=rop": "choose one of alibi, learned, none, rotary",
        "model=gpt": "choose one of bert, roformer",
        "recipe=nano": "choose one of mini, paper, paper_tuned, paper_warmstart, small, smoke$",
        "data=files": "data.path has no value: give data.path=",
        "data=files data.path=": "data.path: ",
        "recipe=paper_warmstart": "init_from has no value",
        "training.steps=many": "training.steps: .*valid integer.*not 'many'",
        "training.steps=0": "training.steps: .*greater than 0",
        "model.heads=3": "hidden_size=256 is not divisible by heads=3",
        f"{SCALING}.kind=longrope": "scaling: .*'none', 'linear', 'ntk', 'dynamic_ntk', 'yarn'",
        f"{SCALING}.kind=linear": "^model.position.scaling.factor has no value: give model",
        f"{SCALING}.factor=4": "scaling.factor: unknown key; valid keys here: kind$",
        f"{SCALING}.kind=yarn {SCALING}.factor=4": "^model.position.scaling.trained_length has no value",
        f"{YARN} {SCALING}.factor=0.5": "factor: .*greater than or equal to 1",
        f"{YARN} {SCALING}.factor=nan": "factor: .*finite number",
        f"{YARN} {SCALING}.beta_slow=40": "beta_fast=32.0 must be above beta_slow=40",
        f"{YARN} {SCALING}.trained_length=6": "too short for beta_slow=1.0: .* 6.3",
        f"{NTK} model.position.fraction=0.03125": "needs two of them",
        "model.position.layout=neox": "'interleaved' or 'half', not 'neox'",
        "model.position.fraction=0.33": "is 21 dimensions",
        "model/position=t5 model.position.max_distance=8": "above a quarter",
        "model/position=learned training.sequence_length=1024": (
            "beyond the learned table of model.position.max_positions=512.*rotary, which has no table"
        ),
        "resume=maybe": "^resume: .*boolean.*; resume: .*'auto'",
        "model.position=rotary": "write model/position=rotary, one of rotary, alibi",
        "model.size=base": "write model/size=base, one of base, ",
        "model.name=../x": "model.name: String should match pattern",
        "seed=99999999999999999999": "seed: ",
        "masking.mask=1.0": "add up to more than 1",
        "schedule.warmup_steps=9": "not both",
        "schedule.warmup_fraction=null schedule.warmup_steps=600": "leaves nothing",
        "schedule.total_steps=500": "schedule.total_steps=500 ends before step 600",
        "training.sequence_length=4": "greater than or equal to 8",
        "training.precision=fp16 runtime.device=cpu": "needs a GPU",
        "data.tokenizer.vocabsize=9": "valid keys here: vocab_size, lowercase, revision, source, words",
        "data.tokenizer.words=hmm": "data.tokenizer.words: .*'none' or 'jieba', not 'hmm'",
        "data=hub data.sources=[{path:glue,revision:null}]": "should match pattern",
        "keep_moments=true": "keep_moments=true needs the run that has them: set init_from",
        "tracker.kind=mlflow": "'none', 'wandb', 'tensorboard' or 'trackio'",
    },
    "glue": {
        "task=[mrpc,nope]": TASKS,
        "data=chinese_hub": "glue has no such option; choose one of hub, builtin, files$",
        "recipe=paper": "init_from has no value: give init_from=",
        "seed=[]": "seed: ",
        "optimizer.learning_rate=[3e-4,0]": "greater than 0",
        "training.epoch=3": "valid keys here: epochs, batch_size, head_dropout",
        "task.mrpc.metrics=[accurcy]": "'accuracy', 'f1'",
        "task.mrpc.metrics=[pearson]": "metrics pearson do not fit a classification",
        "task.mnli.metrics=[f1]": "f1 is that of the second of two labels",
        "task.stsb.labels=[a,b]": "one of the two",
        "task.mrpc.files.texts=[a]": "differ in number",
        "keep_weights=none": "'selected' or 'all'",
    },
    "scm": {
        "preset=wobert_1024": "choose one of wobert_512, ",
        "data=hub": "scm has no such option; choose one of builtin, files$",
        "recipe=paper": "init_from has no value: give init_from=",
        "pair.pooling=max": "'mean' or 'cls'",
        "training.steps=3": "valid keys here: batch_size, epochs",
        "training.loss=mse": "'bce' or 'ranking'",
        "tokenizer.words=pkuseg": "'none' or 'jieba'",
        "model.token_types=1": "choose pair.token_types=zeros",
        "preset=bert_512 training.max_length=513": (
            "training.max_length=513 is beyond the learned table of .*max_positions=512"
        ),
    },
    "clm": {
        f"{LEARNED} training.sequence_length=513": "beyond the learned table of model",
        "training.longer=[2,3]": r"longer=\[2, 3\]: each must divide the largest",
        "training.longer=[1]": "training.longer.*greater than or equal to 2",
        "training.valid_sequences=3": "do not hold one of 4 times the length",
        "model/position=t5 model.position.max_distance=16": (
            "must be above half of position.buckets=32, where the decoder's"
        ),
        DYNAMIC: "dynamic_ntk rotates all keys anew as a text grows",
        "masking.probability=0.1": "masking: unknown key; valid keys here: data, model",
        "data=enwik8": "clm has no such option; choose one of builtin, chinese_builtin",
    },
    "charlm": {
        "data=hub": "charlm has no such option; choose one of builtin, enwik8, files",
        "data.valid_fraction=0.6 data.test_fraction=0.4": "leave nothing to train",
        "data=enwik8 data.sha256=00": "data.sha256: .*match pattern",
        "data=enwik8 data.url=file:///etc": "data.url: .*match pattern",
    },
    "wmt": {
        "search.bem=1": r"search\.bem: unknown key; valid keys here: beam, alpha",
        "training.average=500": "average=500 checkpoints, one in 10 steps, are more than",
        "model/position=learned data.filter.max_length=600": (
            "max_length=600, with the end of the sentence, is beyond the learned table of model"
        ),
        "training.bucket_tokens=64": "does not hold one pair of data.filter.max_length=100",
        "training.tokens_per_update=4200 data.filter.max_length=3000": (
            "tokens_per_update=4200 in buckets of at most 4096 does not hold one pair"
        ),
        DYNAMIC: "dynamic_ntk rotates all keys anew as a text grows",
        "schedule.warmup_steps=400": r"warmup_steps=400 leaves nothing of training\.steps=400",
        "search.length_penalty=marian": r"search\.length_penalty",
        "data=enwik8": "wmt has no such option; choose one of builtin, files, hub",
        "data=hub data.revision=main": r"data\.revision",
    },
}
ALL = [(pipeline, *mistake) for pipeline, some in MISTAKES.items() for mistake in some.items()]


@pytest.mark.parametrize(("pipeline", "overrides", "message"), ALL)
def test_a_mistake_is_told_in_one_line(pipeline, overrides, message):
    with pytest.raises(InputError, match=message) as refusal:
        config(*overrides.split(), pipeline=pipeline)
    assert "\n" not in str(refusal.value)
