/*
 * Names of models that are not known.
 */
#ifndef PLAN_MODEL_NAME_H
#define PLAN_MODEL_NAME_H

/* What may be meant by NAME, which is neither a bundled preset nor a known repository of Hugging
 * Face: the one that is spelled most like it, of the same size (70b, 8x7b) if there is one; case
 * does not count, nor does a repository's owner where NAME has none. NULL: nothing is like it. */
const char *pl_model_like(const char *name);

#endif
