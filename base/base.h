/*
 * base - small tools, independent of the product.
 *
 * The only header of this folder that others include. Each module below is documented in its own
 * header; a module's functions carry its name as prefix (err_, mem_, arena_, str_, log_, opt_,
 * conf_, jx_, rng_, clock_, file_, ranks_, dl_).
 */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include "base/err.h"
#include "base/mem.h"
#include "base/arena.h"
#include "base/str.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/conf.h"
#include "base/jx.h"
#include "base/rng.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/ranks.h"
#include "base/dl.h"
#include "base/banned.h"

/* Number of elements of an array (not of a pointer). */
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#endif
