# shellcheck shell=bash
# What job.sbatch does: one step of one task a node, each task a torchrun.
#
# How a run survives the time limit and preemption, and what each part relies on:
#
#   --signal=TERM@120    SIGTERM two minutes before the time limit, to the tasks of the steps and not
#                        to this shell, as preemption sends it (GraceTime; send_user_signal sends the
#                        same). With B: it would come to this shell alone, and a SIGTERM that the
#                        shell passed on to srun would abort the step after KillWait (30 s).
#   node.sh              passes SIGTERM to its ranks once, and leaves with 143 for it.
#   the ranks            save a checkpoint together and leave. Where torchrun is told too, it kills them
#                        after 30 s; from torch 2.13 on TORCH_ELASTIC_SHUTDOWN_TIMEOUT gives them longer.
#   scontrol requeue     SLURM takes a job that ended in time for finished, whatever --requeue says:
#                        that is for preempted jobs which it had to kill, and for nodes that failed.
#                        So a job that was told to stop asks to be queued again, unless it is already
#                        (preempted without a grace time) or was cancelled: then it is not RUNNING.
#   resume=auto          the same command resumes from the last checkpoint; nothing else to do.
#
# A crash is not queued again: it would only crash again.

set -u
trap : TERM # when the whole job is told, wait for the checkpoint too

# Shared by node.sh on every node. The port differs between jobs that share a node.
FIRST_NODE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
PORT=$((20000 + SLURM_JOB_ID % 10000))
export FIRST_NODE PORT
export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=110

# --cpus-per-task: since SLURM 22.05 a step does not take it from its job, and all ranks would share a core.
# --wait: a minute after one node is done the others are ended, so that no failure leaves them waiting.
# --kill-on-bad-exit=0: not at once, because the others may still be leaving in order.
srun --ntasks-per-node=1 ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} --kill-on-bad-exit=0 --wait=60 bash scripts/slurm/node.sh "$@" &
step=$!
code=0
wait "$step" || code=$?
while kill -0 "$step" 2>/dev/null; do # a signal ends `wait`, not the step
  code=0
  wait "$step" || code=$?
done

if ((code == 143)) && scontrol show job "$SLURM_JOB_ID" | grep -q "JobState=RUNNING"; then
  echo "stopped with a checkpoint; queued again"
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
