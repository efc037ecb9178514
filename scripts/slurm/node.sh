#!/usr/bin/env bash
# One node's part of a job, started by run.sh: a torchrun that meets the others at the first node.
#
# SIGTERM is passed on once. A second one makes torchrun leave before its ranks have saved, and there
# may be a second: of the time limit after that of a preemption. (SLURM tells a step's tasks alone with
# ProctrackType=proctrack/cgroup. Others tell every process below them, so torchrun and ranks twice.)

set -u
pipeline=$1
shift

.venv/bin/python -m torch.distributed.run \
  --nnodes="$SLURM_NNODES" \
  --nproc-per-node="${SLURM_GPUS_ON_NODE:-1}" \
  --rdzv-id="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" \
  --rdzv-backend=c10d \
  --rdzv-endpoint="$FIRST_NODE:$PORT" \
  "scripts/$pipeline.py" "$@" &
launcher=$!
told=
trap '[[ $told ]] || kill -TERM "$launcher"; told=1' TERM

code=0
wait "$launcher" || code=$?
while kill -0 "$launcher" 2>/dev/null; do # a signal ends `wait`, not the launcher
  code=0
  wait "$launcher" || code=$?
done
# torchrun's own code does not tell a rank that was asked to stop from one that failed.
if [[ $told ]] && ((code)); then
  exit 143
fi
exit "$code"
