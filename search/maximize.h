/*
 * The maximum of a smooth function in a box, by projected L-BFGS: Nocedal's two-loop recursion
 * (Nocedal and Wright 2006, algorithm 7.4) over the variables that no bound holds, the step
 * projected onto the box and shortened until it rises enough (Bertsekas 1982, "Projected Newton
 * methods for optimization problems with simple constraints").
 */
#ifndef SEARCH_MAXIMIZE_H
#define SEARCH_MAXIMIZE_H

/* The function at X (COUNT values); writes its gradient (COUNT) to RET_GRAD. */
typedef double se_objective(double *ret_grad, const double *x, int count, void *context);

/* Climb from START (COUNT values, at most SE_MAX_THETA; moved into the box first) to the maximum of
 * OBJECTIVE between LOW and HIGH, with at most EVALS evaluations; ends earlier after a step that
 * gains less than GAIN. RET_X (COUNT; may be START) is where the largest value was seen, which is
 * returned. */
double se_maximize(double *ret_x, const double *start, int count, const double *low,
                   const double *high, se_objective *objective, void *context, int evals,
                   double gain);

#endif
