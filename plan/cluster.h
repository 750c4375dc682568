/*
 * Clusters: devices, the links between them, and profiles by name. A part of plan.h.
 */
#ifndef PLAN_CLUSTER_H
#define PLAN_CLUSTER_H

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

enum { PL_MAX_LINKS = 8 };

#define PL_SUSTAINED 0.9 /* share of its best product that a device keeps, where nobody says */

struct pl_link {
    int span;      /* smallest group of consecutive ranks that needs this link; INT_MAX is "all" */
    double gbs;    /* each way per device */
    double share;  /* of gbs that collectives reach, where it was measured; 0: the usual share */
    bool per_pair; /* gbs is of one pair: a device sends to all others of the span at once */
    /* Bandwidth that the devices of a block (the next smaller span) could send out of it over that
     * of its uplinks; up to 1: no oversubscription. */
    double oversubscription;
    bool rails; /* rail-optimized: equal ranks of nodes reach each other without the uplinks */
    double latency_us;
    char kind[48];
};

struct pl_device {
    char name[64];
    double tflops_fp32, tflops_bf16, tflops_fp8, tflops_fp4; /* dense peaks; 0: unknown */
    double gemm_tflops;     /* best measured GEMM in bf16 (fp32 on a CPU); 0: unknown */
    double gemm_tflops_fp8; /* the same of fp8 operands; 0: unknown */
    double sustained;       /* share of that in a long run (clocks, power) */
    double memory_gib;      /* what the vendor's tool shows as usable */
    double memory_gbs;
    /* Of that memory what the driver holds next to a trainer's buffers, measured: the context, what
     * libraries and code take, NCCL's buffers of all ranks of a node; 0: not measured */
    double context_gib, library_gib, nccl_gib;
    double busy_watts, idle_watts; /* drawn while it computes, and while it waits; 0: unknown */
    bool cpu;                      /* a processor core (JSON "kind": "cpu") */
};

struct pl_parts;

/* A node's processors and their memory; 0: unknown. */
struct pl_host {
    double memory_gib, memory_gbs; /* of the node; peak */
    double link_gbs;               /* each way between one device and the host */
};

struct pl_cluster {
    char name[64];
    int nodes, devices_per_node;
    struct pl_device device; /* on a CPU the device is one core with its share of memory */
    struct pl_host host;
    struct pl_link link[PL_MAX_LINKS];
    int nlinks;                   /* ascending span */
    double price;                 /* of a device-hour, in any currency; 0: unknown */
    bool oversubscribe;           /* more ranks than devices are allowed */
    bool measured;                /* rates are those reached here, not peaks of a data sheet */
    const struct pl_parts *parts; /* of several kinds of devices (plan/parts.h); NULL: one kind */
};

/* True where a device is a processor core: ranks share memory and threads count against cores. */
bool pl_cluster_is_cpu(const struct pl_cluster *cluster);

/* JSON is an object, {"profile": name, "nodes": n}, a profile's name, or NULL for `local`; one with
 * "parts" is refused, at /parts.
 * LOCAL is the parsed profiles/local.json, or NULL: then `local` is this machine's cores and memory
 * with conservative assumed rates. */
int pl_cluster_parse(struct pl_cluster *ret, const json_t *json, const struct pl_cluster *local,
                     struct err *error);
/* The same of one of several clusters, which are told apart by their names: {"profile": ...} takes
 * a "name", too. */
int pl_cluster_parse_named(struct pl_cluster *ret, const json_t *json,
                           const struct pl_cluster *local, struct err *error);
json_t *pl_cluster_json(const struct pl_cluster *cluster); /* complete, new reference */
/* A link without its span, which is "all". */
int pl_link_parse(struct pl_link *ret, const json_t *json, struct err *error);
json_t *pl_link_json(const struct pl_link *link);         /* new reference */
int pl_cluster_devices(const struct pl_cluster *cluster); /* nodes x devices_per_node */

/* What a bundled profile, whose name it returns, has for the GPU that its driver calls NAME; NULL:
 * none has it, and all but its name is unknown. */
const char *pl_device_known(struct pl_device *ret, const char *name);

/* 1 where the rates of CLUSTER are those reached, else USUAL, the share that is reached of a
 * bandwidth's peak. */
double pl_cluster_reached(const struct pl_cluster *cluster, double usual);

/* This machine as a cluster of one node of cores; rates are assumed, memory is the system's. */
void pl_cluster_here(struct pl_cluster *ret);

/* Slowest link that a group of SIZE ranks with stride STRIDE crosses. */
const struct pl_link *pl_cluster_link(const struct pl_cluster *cluster, int size, int stride);

/* Devices of one fast domain: those that the link of a node's devices joins, which may be many
 * nodes (NVL72); devices_per_node where that link joins the whole cluster. */
int pl_cluster_domain(const struct pl_cluster *cluster);

/* Names of profiles, NULL-terminated, and the JSON text of one (NULL if unknown). */
const char *const *pl_cluster_presets(void);
const char *pl_cluster_preset(const char *name);

#endif
