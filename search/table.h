/*
 * All legal layouts of a campaign with their priors, one byte a key.
 *
 * A layout is a row of levels, level v of dimension d standing for value dim[d].value[v]; keys that
 * have one value in the whole space are in `base`. Active dimensions come first, so a row is a
 * point of the kernel as it is. 10^6 layouts take about 100 MB with their priors.
 */
#ifndef SEARCH_TABLE_H
#define SEARCH_TABLE_H

#include "search/gp.h"
#include "search/search.h"

enum se_quantity { SE_THROUGHPUT, SE_MEMORY, SE_QUANTITIES };

struct se_table {
    size_t n;
    int ndims, nactive;
    struct se_dim dim[SE_MAX_DIMS];
    struct pl_layout base;
    bool derive;                 /* a derived key is no dimension */
    uint8_t *level;              /* (n, ndims) */
    float *prior[SE_QUANTITIES]; /* (n): log of the objective, or log bytes less log capacity */
    float *lin[SE_QUANTITIES];   /* (n, SE_MAX_LIN): linear features, zeros after the last */
    int nlin[SE_QUANTITIES];     /* features in use */
    float *log_devices;          /* (n) log of the devices */
    float *log_price; /* (n) log of the price of a second; NULL: all trials count devices */
    float *log_watts; /* (n) log of the job's watts; NULL: the objective has none */
    float *log_batch; /* (n) log of a step's sequences, less that of the workload's first batch;
                         NULL: there is no other */
    double center[SE_QUANTITIES]; /* of the prior: where slopes are 0 */
    uint8_t *first;               /* (n): first active key that differs from the row before */
    size_t changes[SE_MAX_DIMS];  /* rows whose first such key is this */
    uint32_t *hash;               /* (hash_size) index + 1, or 0 */
    size_t hash_size;
};

/* LAYOUTS must be distinct. -EINVAL when COUNT is 0, -E2BIG when a key has too many values. */
int se_table_new(struct se_table **ret, const struct pl_layout *layouts, size_t count,
                 struct err *error);
struct se_table *se_table_free(struct se_table *table);

/* Evaluate the prior of every layout: log throughput, less that of the devices or of the watts if
 * the objective is per device or per joule, and log memory less that of the capacity. */
int se_table_set_prior(struct se_table *table, const struct se_spec *spec, struct err *error);

/* What SPEC's fidelity number FIDELITY leaves of LAYOUT; false where it has no such trial. */
bool se_reduce(struct pl_reduced *ret, const struct se_spec *spec, const struct pl_layout *layout,
               int fidelity);
/* The prior of one layout of SPEC's problem. */
void se_prior_of(struct se_prior *ret, const struct se_spec *spec, const struct pl_layout *layout);

void se_table_layout(struct pl_layout *ret, const struct se_table *table, size_t index);
/* Index of a layout, or -1. */
long se_table_find(const struct se_table *table, const struct pl_layout *layout);

static inline const uint8_t *se_table_row(const struct se_table *table, size_t index)
{
    return table->level + index * (size_t)table->ndims;
}

/* (n): log of what a second of each layout's trial costs, in devices or in money. */
static inline const float *se_table_expense(const struct se_table *table)
{
    return table->log_price ? table->log_price : table->log_devices;
}

static inline const float *se_table_lin(const struct se_table *table, enum se_quantity quantity,
                                        size_t index)
{
    return table->lin[quantity] + index * SE_MAX_LIN;
}

/* The point of layout INDEX for a kernel with NLIN linear features of QUANTITY. */
void se_table_point(struct se_point *ret, const struct se_table *table, enum se_quantity quantity,
                    size_t index, int nlin);

/* Log of the bytes of one device where layout INDEX runs, less the headroom. */
double se_table_capacity(const struct se_table *table, const struct se_spec *spec, size_t index);

#endif
