/* SVG of reports; coordinates are pixels of a box of 720 x 320 that scales to the page. */
#include "tuner/client/chart.h"

#include <assert.h>
#include <math.h>

#include "base/base.h"

#define LEAST 1e-300 /* narrower ranges have no step that is a normal number */

enum { WIDTH = 720, HEIGHT = 320, LEFT = 78, RIGHT = 16, TOP = 16, BOTTOM = 46, TICKS = 6 };

void chart_escape(const char *text, FILE *out)
{
    static const struct {
        char ch;
        const char *entity;
    } entities[] = {{'<', "&lt;"}, {'>', "&gt;"}, {'&', "&amp;"}, {'"', "&quot;"}, {'\'', "&#39;"}};

    for (; *text; text++) {
        const char *entity = NULL;

        for (size_t i = 0; i < ARRAY_LEN(entities); i++)
            if (*text == entities[i].ch)
                entity = entities[i].entity;
        if (entity)
            fputs(entity, out);
        else
            fputc(*text, out);
    }
}

/* ---- ranges -------------------------------------------------------------- */

/* Widen [*MIN, *MAX] to multiples of a step of 1, 2 or 5 times a power of ten, at most TICKS steps.
 */
static double widen(double *min, double *max)
{
    double rough, power, step;

    if (!isfinite(*max - *min) || *max < *min) {
        *min = 0;
        *max = 1;
    }
    if (*max - *min <= fmax(fabs(*max) * 1e-9, LEAST)) {
        double half = fabs(*max) <= LEAST ? 0.5 : fabs(*max) * 0.05;

        *min -= half;
        *max += half;
    }
    rough = (*max - *min) / TICKS;
    power = pow(10, floor(log10(rough)));
    step = rough <= power       ? power
           : rough <= 2 * power ? 2 * power
           : rough <= 5 * power ? 5 * power
                                : 10 * power;
    *min = floor(*min / step) * step;
    *max = ceil(*max / step) * step;
    return step;
}

static double x_of(const struct chart *chart, double x)
{
    return LEFT + (x - chart->x_min) / (chart->x_max - chart->x_min) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct chart *chart, double y)
{
    return HEIGHT - BOTTOM -
           (y - chart->y_min) / (chart->y_max - chart->y_min) * (HEIGHT - TOP - BOTTOM);
}

/* 41000 as "41k": labels stay short. */
static void label(char buf[32], double value, double step)
{
    static const struct {
        double unit;
        const char *suffix;
    } units[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1, ""}};
    double most = fmax(fabs(value), step);

    for (size_t i = 0; i < ARRAY_LEN(units); i++)
        if (most >= units[i].unit || i + 1 == ARRAY_LEN(units)) {
            snprintf(buf, 32, "%.4g%s", fabs(value) < step * 1e-6 ? 0 : value / units[i].unit,
                     fabs(value) < step * 1e-6 ? "" : units[i].suffix);
            return;
        }
}

/* ---- axes ---------------------------------------------------------------- */

static void x_ticks(const struct chart *chart)
{
    FILE *out = chart->out;
    char text[32];

    for (double x = chart->x_min; x <= chart->x_max + chart->x_step / 2; x += chart->x_step) {
        label(text, x, chart->x_step);
        fprintf(out,
                "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                x_of(chart, x), x_of(chart, x), TOP, HEIGHT - BOTTOM, x_of(chart, x),
                HEIGHT - BOTTOM + 16, text);
    }
    fprintf(out, "<text class=\"axis\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
    chart_escape(chart->x_axis, out);
    fputs("</text>\n", out);
}

static void y_ticks(const struct chart *chart)
{
    FILE *out = chart->out;
    char text[32];

    for (double y = chart->y_min; y <= chart->y_max + chart->y_step / 2; y += chart->y_step) {
        label(text, y, chart->y_step);
        fprintf(out,
                "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                LEFT, WIDTH - RIGHT, y_of(chart, y), y_of(chart, y), LEFT - 8, y_of(chart, y) + 4,
                text);
    }
    fprintf(out,
            "<text class=\"axis\" transform=\"translate(16 %d) rotate(-90)\" "
            "text-anchor=\"middle\">",
            (TOP + HEIGHT - BOTTOM) / 2);
    chart_escape(chart->y_axis, out);
    fputs("</text>\n", out);
}

void chart_open(struct chart *chart, FILE *out)
{
    chart->out = out;
    chart->x_step = widen(&chart->x_min, &chart->x_max);
    chart->y_step = widen(&chart->y_min, &chart->y_max);
    assert(chart->x_min < chart->x_max && chart->x_step > 0); /* what places and ticks divide by */
    assert(chart->y_min < chart->y_max && chart->y_step > 0);
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    chart_escape(chart->title, out);
    fputs("\">\n", out);
    x_ticks(chart);
    y_ticks(chart);
}

/* ---- marks --------------------------------------------------------------- */

void chart_point(const struct chart *chart, double x, double y, const char *kind, const char *tip)
{
    if (!isfinite(x) || !isfinite(y))
        return;
    fprintf(chart->out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>", kind,
            x_of(chart, x), y_of(chart, y));
    chart_escape(tip, chart->out);
    fputs("</title></circle>\n", chart->out);
}

void chart_line(const struct chart *chart, const double *x, const double *y, int n, bool steps,
                const char *kind)
{
    if (n < 1)
        return;
    fprintf(chart->out, "<path class=\"%s\" d=\"", kind);
    for (int i = 0; i < n; i++) {
        if (i && steps)
            fprintf(chart->out, "H%.1f", x_of(chart, x[i]));
        fprintf(chart->out, "%s%.1f %.1f", i ? "L" : "M", x_of(chart, x[i]), y_of(chart, y[i]));
    }
    fputs("\"/>\n", chart->out);
}

void chart_level(const struct chart *chart, double y, const char *kind, const char *label)
{
    if (!isfinite(y) || y < chart->y_min || y > chart->y_max)
        return;
    fprintf(chart->out,
            "<path class=\"%s\" d=\"M%d %.1fH%d\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">",
            kind, LEFT, y_of(chart, y), WIDTH - RIGHT, WIDTH - RIGHT - 4, y_of(chart, y) + 14);
    chart_escape(label, chart->out);
    fputs("</text>\n", chart->out);
}

void chart_close(const struct chart *chart)
{
    fputs("</svg>\n", chart->out);
}

void chart_bars(const char *title, const char *const *names, const double *shares, int n, FILE *out)
{
    enum { ROW = 24, NAME = 200 };

    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, n * ROW + 8);
    chart_escape(title, out);
    fputs("\">\n", out);
    for (int i = 0; i < n; i++) {
        double share = fmin(fmax(shares[i], 0), 1);

        fprintf(out, "<text class=\"axis\" x=\"%d\" y=\"%d\" text-anchor=\"end\">", NAME - 8,
                i * ROW + 18);
        chart_escape(names[i], out);
        fprintf(out,
                "</text><rect class=\"bar\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>"
                "<text class=\"tick\" x=\"%.1f\" y=\"%d\">%.0f %%</text>\n",
                NAME, i * ROW + 5, share * (WIDTH - NAME - 60), ROW - 8,
                NAME + share * (WIDTH - NAME - 60) + 6, i * ROW + 18, 100 * share);
    }
    fputs("</svg>\n", out);
}
