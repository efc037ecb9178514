#!/usr/bin/env bash
# Measure what needs a GPU, in ten minutes. The parts, all unless some are named: tests (those marked gpu),
# mfu (share of the GPU's peak), bench (against transformers), curves (losses by precision), trainings (a
# smoke training of each pipeline). A part that fails or runs out of time does not end the others.
#   make gpu-report PARTS="tests mfu"
#   PYTHON=python3 bash scripts/gpu_report.sh      # with an environment that has torch already
# Output: runs/gpu_report/log.txt and the benchmarks' records beside it.
set -u
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
out=runs/gpu_report
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} HF_HUB_OFFLINE=1
mkdir -p $out
rm -rf $out/runs # finished runs would not run again

run() { # seconds, then the words of a Python command
  local seconds=$1 status
  shift
  echo "\$ python $*"
  timeout --kill-after=10 "$seconds" "$python" "$@"
  status=$?
  [ $status = 124 ] && echo "[out of time after $seconds s]" || echo "[exit code $status]"
}
train() { # seconds, pipeline, then overrides
  run "$1" "scripts/$2.py" runtime=gpu tracker=none runtime.progress=false runtime.cache_dir=$out/cache "${@:3}"
}

part() {
  case $1 in
    tests) run 120 -m pytest -m gpu -rfE --tb=short tests/gpu ;;
    mfu) for suite in mfu mfu_compiled; do run 60 -m benchmarks $suite --output $out; done ;;
    bench) for suite in rotary peers peers_compiled; do run 80 -m benchmarks $suite --output $out; done ;;
    curves)
      for precision in fp32 bf16 fp16; do
        train 40 pretrain recipe=mini training.steps=300 training.log_every=30 runtime.compile=false \
          training.precision=$precision runtime.runs_dir=$out/runs/$precision
      done
      run 20 scripts/compare.py $out/runs/{fp32,bf16,fp16}/pretrain/*
      ;;
    trainings)
      for pipeline in pretrain stages glue wmt charlm clm scm; do
        train 60 $pipeline recipe=smoke training.precision=auto runtime.runs_dir=$out/runs
      done
      ;;
    *) echo "error: there is no part $1: choose from tests, mfu, bench, curves, trainings" >&2; exit 2 ;;
  esac
}

"$python" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else f"error: torch {torch.__version__} finds no CUDA device")' || exit 2
for name in "${@:-tests mfu bench curves trainings}"; do for each in $name; do part "$each"; done; done 2>&1 | tee $out/log.txt
exit "${PIPESTATUS[0]}"
