/*
 * Charts as SVG text, for reports: axes with round ticks, points, steps, lines, bars. No script, no
 * style from elsewhere: a chart prints as it is.
 *
 *     chart_open(&chart, out);
 *     chart_point(&chart, x, y, "ok", "trial 3");
 *     chart_close(&chart);
 */
#ifndef TUNER_CLIENT_CHART_H
#define TUNER_CLIENT_CHART_H

#include <stdbool.h>
#include <stdio.h>

struct chart {
    const char *title; /* for those who do not see it, too */
    const char *x_axis, *y_axis;
    double x_min, x_max, y_min, y_max; /* what is to be seen; widened to round numbers */
    FILE *out;
    double x_step, y_step; /* between ticks */
};

/* TEXT with what HTML would obey as entities. */
void chart_escape(const char *text, FILE *out);

/* Widen the ranges and draw the axes. A range without an extent gets one around its number, and
 * where there is none (NAN, or a minimum above its maximum) it is 0..1. */
void chart_open(struct chart *chart, FILE *out);
/* A mark with the style KIND (a class) and a tip; nothing for what is not finite. */
void chart_point(const struct chart *chart, double x, double y, const char *kind, const char *tip);
/* N points joined by straight lines, or by steps: level until the next point. */
void chart_line(const struct chart *chart, const double *x, const double *y, int n, bool steps,
                const char *kind);
void chart_level(const struct chart *chart, double y, const char *kind, const char *label);
void chart_close(const struct chart *chart);

/* Bars of N shares between 0 and 1, a chart of its own. */
void chart_bars(const char *title, const char *const *names, const double *shares, int n,
                FILE *out);

#endif
