"""How OpenMP's threads wait; import it before torch, because the runtime reads it when it is loaded.

By default a thread of libgomp, the OpenMP runtime of torch on Linux, spins for milliseconds before it
sleeps. On a machine with more threads than cores, it so takes the core of the thread that it waits for.
libgomp itself spins only 1,000 times when its own process has more threads than cores; other processes
it cannot see. `runtime.tune_process=false` on the command line, or a policy in the environment, keeps
the default.
"""

import os
import sys

SPINS = 1000
"""Turns of the waiting loop before a thread sleeps, tens of microseconds."""

if "runtime.tune_process=false" not in sys.argv and "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", str(SPINS))
