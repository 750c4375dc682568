/*
 * files - a layout through every target, one file each, for readers that are not C.
 */
#ifndef TESTS_EXPORT_FILES_H
#define TESTS_EXPORT_FILES_H

#include "tuner/export/export.h"

/*
 * Write IN through every target, loss allowed, as DIR/NUMBER.TARGET, and DIR/NUMBER.facts with
 * what they were made from: {"model","workload","layout","stages":[[layers of a chunk]],
 * "lost":{TARGET:[setting]}}. JOBS: also through every job script around a target. What a target
 * refuses is left out. Returns the number of files without the facts; exits where one cannot be
 * written.
 */
int files_write(const char *dir, int number, const struct tn_export_in *in, bool jobs);

#endif
