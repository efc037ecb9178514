#!/usr/bin/env bash
# One node's part of a job, started by run.sh: a torchrun that meets the others at the first node.
#
# SIGTERM is passed on once, to the ranks and past torchrun, which would kill them 30 seconds later
# whether they have saved or not; it ends with them. There may be a second: of the time limit after that
# of a preemption. (SLURM tells a step's tasks alone with ProctrackType=proctrack/cgroup. Others tell
# every process below them, torchrun too.)

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
trap '[[ $told ]] || pkill -TERM -P "$launcher" || kill -TERM "$launcher"; told=1' TERM # no ranks yet

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
