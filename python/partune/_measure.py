"""What a series of step times says; the formulas of trainer/measure.c.

The interval of the median is distribution-free: of n independent values in ascending order, the
j-th from below and the j-th from above enclose the median with a binomial probability; j is the
largest with at least 95 % (Conover, Practical Nonparametric Statistics, 3.2). Fewer than six values
allow no such interval: then it is the whole range.
"""

import math
from collections import namedtuple

Stats = namedtuple("Stats", "median p10 p90 ci95")  # ci95: half-width of the 95 % interval


def quantile(ordered, share):
    at = share * (len(ordered) - 1)
    i = int(at)
    if i + 1 >= len(ordered):
        return ordered[-1]
    return ordered[i] + (at - i) * (ordered[i + 1] - ordered[i])


def interval_rank(n):
    """The largest j from 0 with P(Binomial(n, 1/2) <= j) <= 2.5 %; 0 where there is none."""
    if n > 1000:
        return int(0.5 * n - 0.98 * math.sqrt(n)) - 1
    p, total, j = 2.0**-n, 0.0, 0
    for i in range(n + 1):
        total += p
        if total > 0.025:
            break
        j = i
        p = p * (n - i) / (i + 1)
    return j


def stats(ms):
    """Stats of the step times MS; None without any."""
    if not ms:
        return None
    ordered = sorted(ms)
    j = interval_rank(len(ordered))
    half = (ordered[len(ordered) - 1 - j] - ordered[j]) / 2
    return Stats(quantile(ordered, 0.5), quantile(ordered, 0.1), quantile(ordered, 0.9), half)


def spread(ms, most=64):
    """The key `ranks` of a step event: MS has the milliseconds of every rank.

    At most MOST numbers are listed, each the slowest of as many consecutive ranks as need be.
    """
    ordered = sorted(ms)
    group = -(-len(ms) // most)
    busy = [max(ms[i : i + group]) for i in range(0, len(ms), group)]
    return {
        "min": ordered[0],
        "median": quantile(ordered, 0.5),
        "max": ordered[-1],
        "slowest": ms.index(ordered[-1]),
        "busy": busy,
    }
