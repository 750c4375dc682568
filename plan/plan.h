/*
 * plan - the domain: models, clusters, layouts, the rules that make a layout legal, the bytes and
 * the seconds it needs. Pure functions of their arguments without I/O, but for pl_cluster_here(),
 * which asks the system, and stages.h, which interns texts; presets are compiled in.
 *
 * Words are those of docs/reference/campaign.md and layout.md: the JSON, SQL, HTTP and C names of
 * a thing are the same. Sizes are bytes (uint64_t or double where they feed a model), times are
 * seconds (double), bandwidths are 10^9 bytes/s, peaks are 10^12 floating-point operations/s.
 *
 * Structs here are plain values: copy them freely; none owns memory unless its comment says so.
 *
 * Other folders include this file; its parts, one idea each, follow from top to bottom:
 *
 *   model, cluster, problem   what is trained, where, and by what; hf reads others' models
 *   stack, learn              how efficiently a trainer runs, from presets or a few runs
 *   layout, stages, mesh,     how it is split, and which splits are legal
 *   rules
 *   memory, cost, pipe, why,  bytes per rank, seconds per iteration, and what changes them; joules
 *   objective                 and what layouts are compared by
 *   space, rank, baseline,    sets of layouts, the best of them, the one to compare with; how
 *   patience, parts           long that may take; clusters of two kinds of devices
 *   project, example          measurements carried to other sizes, published studies
 *   limits, fidelity          when a trial has measured enough; trials of a smaller problem
 *   partune                   the bundled trainer's arithmetic
 */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "plan/baseline.h"
#include "plan/cluster.h"
#include "plan/cost.h"
#include "plan/example.h"
#include "plan/fidelity.h"
#include "plan/hf.h"
#include "plan/layout.h"
#include "plan/learn.h"
#include "plan/limits.h"
#include "plan/memory.h"
#include "plan/mesh.h"
#include "plan/model.h"
#include "plan/objective.h"
#include "plan/parts.h"
#include "plan/partune.h"
#include "plan/patience.h"
#include "plan/pipe.h"
#include "plan/problem.h"
#include "plan/project.h"
#include "plan/rank.h"
#include "plan/rules.h"
#include "plan/size.h"
#include "plan/space.h"
#include "plan/stack.h"
#include "plan/stages.h"
#include "plan/why.h"

#endif
