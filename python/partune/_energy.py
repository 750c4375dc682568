"""Energy of what a rank trains on: its GPU by NVML, without CUDA its host's CPU packages by Linux
powercap (RAPL).

Libraries are loaded at run time by ctypes and never required: what cannot be read is None.
"""

import ctypes
import hashlib
import os

from partune import _ranks

POWERCAP = "/sys/class/powercap"


def number_of(text):
    """A number that is the same wherever TEXT is, exact as a float."""
    return float(int.from_bytes(hashlib.sha256(text.encode()).digest()[:6], "big"))


class Gpu:
    """The GPU that this process uses: millijoules since its driver was loaded (NVML)."""

    def __init__(self):
        cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
        device, bus = ctypes.c_int(), ctypes.create_string_buffer(32)
        handle = ctypes.c_void_p()
        mig, pending = ctypes.c_uint(0), ctypes.c_uint()
        # CUDA's numbers follow CUDA_VISIBLE_DEVICES, NVML's do not: they meet at the bus address.
        done = (
            cuda.cuInit(0)
            or cuda.cuDeviceGet(ctypes.byref(device), _ranks.cuda().current_device())
            or cuda.cuDeviceGetPCIBusId(bus, len(bus), device)
            or nvml.nvmlInit_v2()
            or nvml.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(handle))
        )
        if done:
            raise OSError("the GPU is unknown to NVML")
        # The counter is of the whole GPU, whose other instances may be somebody else's.
        known = nvml.nvmlDeviceGetMigMode(handle, ctypes.byref(mig), ctypes.byref(pending)) == 0
        if known and mig.value:
            raise OSError("the GPU is divided (MIG)")
        self.id = number_of(host() + bus.value.decode("ascii"))
        self._nvml, self._handle = nvml, handle

    def read(self):
        """Joules since the last call."""
        total = ctypes.c_ulonglong()
        if self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle, ctypes.byref(total)):
            raise OSError("NVML has no energy of the GPU")
        grown = (total.value - getattr(self, "_last", total.value)) / 1000
        self._last = total.value
        return grown


class Packages:
    """All CPU packages of this host, as trainer/energy.c counts them."""

    def __init__(self):
        root = os.environ.get("PARTUNE_POWERCAP", POWERCAP)
        folders = [os.path.join(root, name) for name in sorted(os.listdir(root))]
        zones = [at for at in folders if os.path.basename(at).startswith("intel-rapl:")]
        self._zones = [at for at in zones if contents(at, "name").startswith("package")]
        if not self._zones:
            raise OSError(f"{root} has no CPU packages")
        self._range = [int(contents(zone, "max_energy_range_uj")) for zone in self._zones]
        self._last = None
        self.id = number_of(host())

    def read(self):
        """Joules since the last call."""
        now = [int(contents(zone, "energy_uj")) for zone in self._zones]
        last, self._last = self._last or now, now
        grown = [b - a if b >= a else top - a + b for a, b, top in zip(last, now, self._range)]
        if min(grown) < 0:
            raise OSError("a counter is above its own bound")
        return sum(grown) / 1e6


def contents(folder, name):
    with open(os.path.join(folder, name), encoding="ascii", errors="replace") as file:
        return file.read().strip()


def host():
    """The same for all processes of a host, in containers, too."""
    try:
        return contents("/proc/sys/kernel/random", "boot_id")
    except OSError:
        return os.uname().nodename


class Meter:
    """Adds up the joules of this rank's device or host; `row` is what the ranks exchange."""

    def __init__(self):
        try:
            self._source = Gpu() if _ranks.cuda() else Packages()
            self._source.read()
            self.row = [self._source.id, 0.0]
        except (OSError, AttributeError, ValueError):
            self._lose()

    def _lose(self):
        self._source, self.row = None, [0.0, float("nan")]

    def read(self, counts):
        """Read the counters; if COUNTS, add what they grew by since the last call."""
        try:
            grown = self._source.read() if self._source else 0.0
        except (OSError, ValueError):
            self._lose()
        else:
            self.row[1] += grown if counts else 0.0


def total(rows):
    """Joules of all ranks' ROWS, each device or host once; None where one is unknown."""
    joules = sum(dict(rows).values())
    return joules if joules > 0 else None
