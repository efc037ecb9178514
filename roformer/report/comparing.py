"""What comparisons with a baseline share: which arm it is, and how their numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from roformer.report.records import RecordError
from roformer.report.statistics import Interval, distinct_resamples, smallest_p, spread


def find_baseline(names: Iterable[str], wanted: str | None) -> str:
    """Return the name of the arm to compare with: the one that has `wanted` in it, else the first.

    Raises:
        RecordError: none or several have it; says which there are.
    """
    known = list(dict.fromkeys(names))
    if wanted is None or wanted in known:
        return wanted or known[0]
    found = [name for name in known if wanted in name]
    if len(found) != 1:
        some = f"{len(found)} arms have" if found else "no arm has"
        raise RecordError(f"{some} {wanted!r} in the name: choose of {'; '.join(known)}")
    return found[0]


def mean_text(values: Sequence[float], digits: int) -> str:
    """Return mean ± standard deviation (n)."""
    mean, std, n = spread(values)
    if math.isnan(mean):
        return f"NaN ({n})"
    return f"{mean:.{digits}f}{'' if std is None else f' ± {std:.{digits}f}'} ({n})"


def signed(value: float, digits: int) -> str:
    """Return a difference; nothing has no sign."""
    text = f"{value:+.{digits}f}"
    return "NaN" if math.isnan(value) else text[1:] if not float(text) else text


def interval_text(interval: Interval | None, digits: int) -> str:
    """Return `low to high` of differences, with signs; nothing where there is no interval."""
    if interval is None:
        return "–"
    return f"{signed(interval.low, digits)} to {signed(interval.high, digits)}"


def p_text(p: float | None) -> str:
    """Return a p-value with three decimals, none of them rounded to nothing."""
    if p is None:
        return "–"
    return f"{p:.3f}" if p >= 0.0005 else f"{p:.0e}" if p > 0 else "0"


def sign_flip_limit(n: int) -> str:
    """Return, in a sentence, the least p that n pairs of seeds can give."""
    if n < 2:
        return "With one seed there is no interval and no test over seeds."
    return f"With {n} seeds the sign-flip test gives no p below {p_text(smallest_p(n))}."


def bootstrap_limit(n: int) -> str:
    """Return, in a sentence, how coarse the bootstrap over n seeds is."""
    if n < 2:
        return "With one seed there is no interval and no test over seeds."
    return (
        f"With {n} seeds there are {distinct_resamples(n):,} different resamples: the interval is "
        "rough, and too narrow rather than too wide."
    )
