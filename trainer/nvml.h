/*
 * A GPU as NVIDIA's management library (NVML, libnvidia-ml.so.1) sees it while a trial runs on it:
 * energy, what slows its clocks, who uses it. Nothing links the library; constants are of nvml.h.
 */
#ifndef TRAINER_NVML_H
#define TRAINER_NVML_H

#include "base/base.h"

struct tr_nvml;

/* The GPU at PCI bus address BUS. -ENOENT, -ENOSYS without the library or one of its functions;
 * -EIO with its text where it refuses; -ENOTSUP where the GPU is divided into MIG instances, whose
 * energy and clocks are the whole one's. */
int tr_nvml_open(struct tr_nvml **ret, const char *bus, struct err *error);
struct tr_nvml *tr_nvml_free(struct tr_nvml *nvml); /* accepts NULL; returns NULL */

/* The driver's version, as nvidia-smi has it; empty: NVML does not say it. */
void tr_nvml_driver(char *ret, size_t size, const struct tr_nvml *nvml);
/* Joules since the driver was loaded; NaN: the GPU does not count them. */
double tr_nvml_joules(const struct tr_nvml *nvml);
/* Are clocks lower now than the GPU's own limits ask for: for heat, or by its power supply? A power
 * cap is a limit of its own. False where NVML does not say it. */
bool tr_nvml_slowed(const struct tr_nvml *nvml);
/* Processes that compute on it, those of other containers, too; 0 where NVML does not say it. */
int tr_nvml_processes(const struct tr_nvml *nvml);

#endif
