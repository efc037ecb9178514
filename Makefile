# Every target sets up its environment. `make` without a target lists them. It needs Python and git.
.DEFAULT_GOAL := help
.PHONY: help setup reproduce reproduce-all report tables dashboard sweep pretrain stages convert glue glue-submission predict wmt wmt-compare translate charlm clm generate scm average export convert-layout prepare plan compare extension bench test test-slow test-gpu gpu-report lint clean

PYTHON ?= python3
MODEL ?=
PRESET ?= roformer_1024
PIPELINE ?= pretrain
RECIPE ?= mini
GPUS ?=
PROCESSES ?=
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete

# The value of a variable: $(call path_of,RUN,EXAMPLE) that a target needs, $(call number,GPUS) a number,
# $(call one_of,PIPELINE,NAMES) a name that the target knows.
given = $(or $($(1)),$(error make $@ needs $(1): add $(1)=$(2)))
one_of = $(or $(filter $(2),$($(1))),$(error make $@ has no $(1)=$($(1)): choose one of $(2)))
number = $(if $(shell echo '$($(1))' | tr -d 0-9),$(error $(1)=$($(1)) is no number: give one, $(1)=2),$($(1)))

# $(call path,RUN) and $(call path_of,RUN,EXAMPLE): one path as one word of the shell. Globs, ~ and quotes
# keep their meaning.
space := $(subst ,, )
left := (
right := )
escaped = $(subst $(right),\$(right),$(subst $(left),\$(left),$(subst $(space),\ ,$(strip $(1)))))
path = $(if $(findstring ',$($(1)))$(findstring ",$($(1))),$($(1)),$(call escaped,$($(1))))
path_of = $(if $(call given,$(1),$(2)),$(call path,$(1)))

# A variable that no given target reads, such as recipe= or ARG=, is an error that names the right one.
# READ is found in the lines of the targets.
LISTED := MODEL PRESET PIPELINE FROM RECIPE GPUS PROCESSES ARGS RUN RUNS STUDY PARTS
GIVEN := $(foreach name,$(.VARIABLES),$(if $(findstring command line,$(origin $(name))),$(name)))
WORDS = $(foreach goal,$(MAKECMDGOALS),$(shell sed -n '\|^$(goal):|,/^$$/p' $(firstword $(MAKEFILE_LIST)) | grep -oE '[A-Z]+'))
READ = $(sort $(filter $(LISTED),$(WORDS) $(if $(filter LAUNCH,$(WORDS)),GPUS PROCESSES)))
upper = $(shell echo '$(1)' | tr a-z A-Z)
close = $(firstword $(foreach name,$(READ),$(if $(filter $(1)%,$(name))$(filter $(name)S,$(1)),$(name))))
reads = it reads $(or $(READ),no variables)$(if $(filter $(LISTED),$(1)),,; a variable of the environment goes before make)
option = $(if $(filter $(1),$(2)),,$(filter ARGS,$(READ)))
instead = $(or $(patsubst %,write %=$(value $(1)),$(call close,$(2))),$(if $(call option,$(1),$(2)),write ARGS="$(1)=$(value $(1))"),$(call reads,$(1)))
unread = $(error make $(or $(MAKECMDGOALS),help) does not read $(1): $(call instead,$(1),$(call upper,$(1))))
ifneq ($(GIVEN),)
$(foreach name,$(filter-out $(READ) PYTHON VENV,$(GIVEN)),$(call unread,$(name)))
endif

# One process runs the script itself; several go through a launcher.
ifneq ($(filter-out 0 1,$(GPUS)),)
GPUS_THERE := gpus-there
LAUNCH = $(BIN)/accelerate launch --multi_gpu --num_processes $(call number,GPUS) --num_machines 1 --mixed_precision no --dynamo_backend no
else ifneq ($(filter-out 0 1,$(PROCESSES)),)
LAUNCH = $(BIN)/torchrun --standalone --nproc-per-node=$(call number,PROCESSES)
else
LAUNCH := $(BIN)/python
endif

help:  ## this list
	@sed -nE 's/^##@ (.*)/\n\1/p; s/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 17
	@echo
	@echo 'In brackets: RECIPE=, mini unless given. MODEL=bert PRESET=wobert_512 (scm) GPUS=8 PROCESSES=2 (on a CPU)'
	@echo '         ARGS="model/position=alibi data=files data.path=corpus/ training.steps=1000 seed=1"'
	@echo '         ARGS=--quiet: only the last lines and errors (trainings, sweep, reproduce)'
	@echo 'All options: python scripts/<target>.py --help, with _ for -; of bench: python -m benchmarks --help'

##@ Start

setup: $(STAMP)  ## only the environment, in .venv

# torch goes first and by its exact pin, so that no other requirement can choose its build.
$(STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python 3.11 or newer is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$$(grep '^torch==' requirements.txt)"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

# Without these GPUs, accelerate silently starts its processes on the CPU.
.PHONY: gpus-there
gpus-there: $(STAMP)
	@$(BIN)/python -c 'import torch; from roformer.cli import require_gpus; require_gpus($(call number,GPUS), torch.cuda.device_count())'

reproduce: $(STAMP) $(GPUS_THERE)  ## the paper: pretrain, glue and wmt with their baselines, then the report
	@$(BIN)/python scripts/reproduce.py --launcher "$(LAUNCH)" recipe=$(RECIPE) $(ARGS)

reproduce-all: $(STAMP) $(GPUS_THERE)  ## the whole paper: also Performer, causal and Chinese models
	@$(BIN)/python scripts/reproduce.py --all --launcher "$(LAUNCH)" recipe=$(RECIPE) $(ARGS)

plan: $(STAMP)  ## what a recipe would cost: make plan RECIPE=paper GPUS=8, PIPELINE=wmt|charlm|clm|stages
	$(BIN)/python scripts/$(call one_of,PIPELINE,pretrain stages wmt charlm clm).py --plan --devices=$(or $(call number,GPUS),1) $(MODEL:%=model=%) recipe=$(RECIPE) $(ARGS)

##@ Train (MODEL=, RECIPE=, ARGS="KEY=VALUE …")

pretrain: $(STAMP) $(GPUS_THERE)  ## masked-language-model pre-training [smoke, mini, small, paper, paper_tuned, paper_warmstart, warmstart]
	$(LAUNCH) scripts/pretrain.py $(MODEL:%=model=%) recipe=$(RECIPE) $(ARGS)

stages: $(STAMP) $(GPUS_THERE)  ## pre-training in stages of several lengths, as Table 4 [smoke, mini, paper, paper_warmstart]
	$(LAUNCH) scripts/stages.py $(MODEL:%=model=%) recipe=$(RECIPE) $(ARGS)

convert: $(STAMP) $(GPUS_THERE)  ## other positions for a published BERT: make convert FROM=FOLDER_OR_HUB_ID [smoke, mini, small]
	$(LAUNCH) scripts/convert.py init_from=$(call path_of,FROM,FOLDER_OR_HUB_ID) recipe=$(RECIPE) $(ARGS)

glue: $(STAMP) $(GPUS_THERE)  ## fine-tuning on GLUE, after the pre-training if there is none [smoke, mini, paper, stable]
	$(LAUNCH) scripts/glue.py $(MODEL:%=model=%) recipe=$(RECIPE) $(ARGS)

wmt: $(STAMP) $(GPUS_THERE)  ## translation: BPE, training, averaging, beam search, BLEU [smoke, mini, multi30k, small, paper, paper_enfr, paper_big]
	$(LAUNCH) scripts/wmt.py $(MODEL:%=model=%) recipe=$(RECIPE) $(ARGS)

charlm: $(STAMP) $(GPUS_THERE)  ## byte-level language model: make charlm ARGS="model/position=none" [smoke, mini, paper]
	$(LAUNCH) scripts/charlm.py $(MODEL:%=model=%) recipe=$(RECIPE) $(ARGS)

clm: $(STAMP) $(GPUS_THERE)  ## causal language model on the text of pre-training [smoke, mini, small, base]
	$(LAUNCH) scripts/clm.py $(MODEL:%=model=%) recipe=$(RECIPE) $(ARGS)

scm: $(STAMP) $(GPUS_THERE)  ## triplets of long Chinese documents: make scm PRESET=roformer_512 [smoke, mini, real, paper]
	$(LAUNCH) scripts/scm.py preset=$(PRESET) recipe=$(RECIPE) $(ARGS)

prepare: $(STAMP)  ## only the data, which training prepares when needed: PIPELINE=pretrain|stages|convert|wmt|charlm|clm
	$(BIN)/python scripts/$(call one_of,PIPELINE,pretrain stages convert wmt charlm clm).py --prepare $(MODEL:%=model=%) recipe=$(RECIPE) $(ARGS)

sweep: $(STAMP)  ## the runs of a study: make sweep STUDY=experiments/causal_lm ARGS="--jobs 2"
	$(BIN)/python scripts/sweep.py $(call path_of,STUDY,experiments/causal_lm) $(ARGS)

##@ Use a trained run (RUN=)

predict: $(STAMP)  ## classify lines of stdin: make predict RUN=runs/glue/sst2-… < sentences.txt
	@$(BIN)/python scripts/predict.py $(call path_of,RUN,runs/glue/YOUR_RUN) $(ARGS)

translate: $(STAMP)  ## translate lines of stdin: make translate RUN=runs/wmt/… < source.txt
	@$(BIN)/python scripts/translate.py $(call path_of,RUN,runs/wmt/YOUR_RUN) $(ARGS)

generate: $(STAMP)  ## continue a text: make generate RUN=runs/clm/… ARGS="--prompt 'The' --seed 1"
	@$(BIN)/python scripts/generate.py $(call path_of,RUN,runs/clm/YOUR_RUN) $(ARGS)

extension: $(STAMP)  ## a trained run read at other lengths: make extension RUN=runs/pretrain/…
	$(BIN)/python experiments/length_extension/measure.py $(call path_of,RUN,runs/pretrain/YOUR_RUN) $(ARGS)

average: $(STAMP)  ## mean of a run's checkpoints: make average RUN=runs/wmt/… ARGS="--last 5"
	$(BIN)/python scripts/average.py $(call path_of,RUN,runs/wmt/YOUR_RUN) $(or $(ARGS),--last 5)

export: $(STAMP)  ## a run as a folder of transformers: make export RUN=runs/… ARGS="--output FOLDER"
	@$(BIN)/python scripts/export.py $(call path_of,RUN,runs/pretrain/YOUR_RUN) $(ARGS)

convert-layout: $(STAMP)  ## q and k in the other rotary layout: make convert-layout RUN=runs/… ARGS="--to half --output OUT"
	$(BIN)/python scripts/convert_layout.py $(call path_of,RUN,runs/pretrain/YOUR_RUN) $(call given,ARGS,"--to half --output FOLDER")

##@ Results

report: $(STAMP)  ## tables, figures and one HTML dashboard from the records
	$(BIN)/python scripts/report.py $(ARGS)

dashboard: $(STAMP)  ## the dashboard on loopback, following runs while they train
	$(BIN)/python scripts/dashboard.py $(ARGS)

compare: $(STAMP)  ## curves of finished runs side by side: make compare RUNS="runs/pretrain/*"
	$(BIN)/python scripts/compare.py $(or $(RUNS),runs/pretrain/*) $(ARGS)

tables: $(STAMP)  ## tables of finished runs: make tables RUNS="runs/glue/*"
	$(BIN)/python scripts/tables.py $(call given,RUNS,"runs/glue/*") $(ARGS)

glue-submission: $(STAMP)  ## the GLUE server's files: make glue-submission RUNS="runs/glue/*roformer*"
	$(BIN)/python scripts/glue_submission.py $(or $(RUNS),runs/glue/*) $(ARGS)

wmt-compare: $(STAMP)  ## paired bootstrap, the baseline first: make wmt-compare RUNS="runs/wmt/a runs/wmt/b"
	$(BIN)/python scripts/wmt_compare.py $(call given,RUNS,"runs/wmt/BASELINE runs/wmt/YOUR_RUN") $(ARGS)

##@ Develop

bench: $(STAMP)  ## speed against transformers and the machine's own rate, from one run: make bench ARGS=rotary
	$(BIN)/python -m benchmarks $(ARGS)

# A file's tests run in one process and make its fixtures once; the long files come first.
test: $(STAMP)  ## the tests, two to five minutes on two cores
	$(BIN)/python -m pytest -m "not slow and not gpu" -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-slow: $(STAMP)  ## end-to-end tests: several processes, kills, whole runs
	$(BIN)/python -m pytest -m "slow and not gpu" -n 2 --dist worksteal $(ARGS)

test-gpu: $(STAMP)  ## tests that need a CUDA device
	$(BIN)/python -m pytest -m gpu $(ARGS)

gpu-report: $(STAMP)  ## all that needs a GPU, measured in ten minutes: PARTS="tests mfu bench curves trainings"
	PYTHON=$(BIN)/python bash scripts/gpu_report.sh $(PARTS)

lint: $(STAMP)  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:  ## remove the environment and the prepared text; runs stay
	rm -rf $(VENV) cache
