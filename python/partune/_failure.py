"""Exceptions as the classes and exit codes of docs/reference/protocol.md.

Names of torch's exceptions and words of its messages are compared, so that torch is never imported:
its exceptions were renamed over the years (torch.cuda.OutOfMemoryError became
torch.OutOfMemoryError), and in older versions they are plain RuntimeErrors.
"""

import errno
import re

EXIT = {
    "illegal": 65,
    "oom": 66,
    "numeric": 67,
    "data": 68,
    "comm": 69,
    "io": 70,
    "node_fail": 71,
    "crash": 1,
}
EXIT_STOPPED = 75


class IllegalLayout(Exception):
    """Raise it if the script cannot train the layout: the search learns that it is infeasible."""


OOM_NAMES = {"OutOfMemoryError"}
COMM_NAMES = {"DistError", "DistBackendError", "DistNetworkError", "DistStoreError"}
OOM_WORDS = re.compile(
    r"out of memory|can't allocate memory|cannot allocate memory|not enough memory|"
    r"CUBLAS_STATUS_ALLOC_FAILED|OUT_OF_(DEVICE|HOST)_MEMORY",
    re.IGNORECASE,
)
# The device, its bus or its driver, not the program: CUDA's words, which HIP has, too. A GPU that fell
# off the bus is an unknown error.
LOST_WORDS = re.compile(
    r"uncorrectable (ECC|NVLink) error|device\(s\) is/are busy or unavailable|"
    r"no (CUDA|ROCm)-capable device is detected|system not yet initialized|"
    r"(CUDA|HIP) error: unknown error|GPU is lost",
    re.IGNORECASE,
)
COMM_WORDS = re.compile(
    r"\bNCCL|\bRCCL|gloo|ProcessGroup|process group|connection (closed|reset|refused)|"
    r"timed out (waiting|after)|socket timeout|watchdog",
    re.IGNORECASE,
)
# Of Megatron-LM, torchtitan, PyTorch's anomaly detection and Lightning's, in this order.
NUMERIC_WORDS = re.compile(
    r"found (NaN|Inf) in|(loss|norm) is not finite|returned nan values|"
    r"nan and/or inf values|The loss returned in `\w+` is (nan|-?inf)",
    re.IGNORECASE,
)
ASKED = re.compile(r"tried to allocate ([0-9.]+) ?(bytes|[KMGT]iB)", re.IGNORECASE)
UNITS = {"bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}


def classify(error):
    """The class of the exception ERROR."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = str(error)
    if isinstance(error, IllegalLayout):
        return "illegal"
    if isinstance(error, MemoryError) or names & OOM_NAMES:
        return "oom"
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return "oom"
    if isinstance(error, RuntimeError) and OOM_WORDS.search(text):
        return "oom"
    if isinstance(error, RuntimeError) and LOST_WORDS.search(text):
        return "node_fail"
    if isinstance(error, FloatingPointError) or NUMERIC_WORDS.search(text):
        return "numeric"
    if names & COMM_NAMES or isinstance(error, (ConnectionError, TimeoutError)):
        return "comm"
    if isinstance(error, RuntimeError) and COMM_WORDS.search(text):
        return "comm"
    return "io" if isinstance(error, OSError) else "crash"


def detail(error):
    """ERROR on one line."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    plain = isinstance(error, (IllegalLayout, FloatingPointError))
    return (text if plain else f"{name}: {text}")[:390]


def asked_bytes(error):
    """How much the allocation that failed asked for; None where the message does not say."""
    found = ASKED.search(str(error))
    return int(float(found.group(1)) * UNITS[found.group(2).lower()]) if found else None
