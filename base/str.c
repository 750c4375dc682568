#include "base/base.h"

#include <errno.h>
#include <math.h>

static void reserve(struct str *s, size_t more)
{
    size_t need = s->len + more + 1;

    if (need <= s->cap)
        return;
    s->cap = s->cap * 2 > need ? s->cap * 2 : need < 64 ? 64 : need;
    s->text = mem_realloc(s->text, s->cap);
}

void str_addn(struct str *s, const void *bytes, size_t n)
{
    reserve(s, n);
    if (n)
        memcpy(s->text + s->len, bytes, n);
    s->len += n;
    s->text[s->len] = '\0';
}

void str_add(struct str *s, const char *text)
{
    str_addn(s, text, strlen(text));
}

void str_addc(struct str *s, char c)
{
    str_addn(s, &c, 1);
}

void str_vaddf(struct str *s, const char *fmt, va_list ap)
{
    va_list again;
    int n;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    reserve(s, (size_t)n);
    vsnprintf(s->text + s->len, (size_t)n + 1, fmt, ap);
    s->len += (size_t)n;
}

void str_addf(struct str *s, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    str_vaddf(s, fmt, ap);
    va_end(ap);
}

void str_trunc(struct str *s, size_t len)
{
    if (len < s->len) {
        s->len = len;
        s->text[len] = '\0';
    }
}

char *str_take(struct str *s)
{
    char *text = s->text ? s->text : mem_strdup("");

    *s = (struct str){0};
    return text;
}

void str_done(struct str *s)
{
    free(s->text);
    *s = (struct str){0};
}

const char *str_text(const struct str *s)
{
    return s->text ? s->text : "";
}

bool str_starts(const char *s, const char *prefix)
{
    return !strncmp(s, prefix, strlen(prefix));
}

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);

    return n >= m && !memcmp(s + n - m, suffix, m);
}

bool str_eq(const char *a, const char *b)
{
    return a && b && !strcmp(a, b);
}

int str_to_i64(int64_t *ret, const char *s, int64_t min, int64_t max)
{
    char *end;
    long long v;

    if (!s || (*s != '-' && (*s < '0' || *s > '9')))
        return -EINVAL;
    errno = 0;
    v = strtoll(s, &end, 10);
    if (end == s || *end)
        return -EINVAL;
    if (errno || v < min || v > max)
        return -ERANGE;
    *ret = v;
    return 0;
}

int str_to_f64(double *ret, const char *s)
{
    char *end;
    double v;

    if (!s || !*s || *s == ' ')
        return -EINVAL;
    v = strtod(s, &end);
    if (end == s || *end || !isfinite(v))
        return -EINVAL;
    *ret = v;
    return 0;
}

int str_to_bytes(uint64_t *ret, const char *s)
{
    static const char units[] = "kmgt";
    char *end;
    double v;

    if (!s || *s < '0' || *s > '9')
        return -EINVAL;
    v = strtod(s, &end);
    for (size_t i = 0; *end && i < sizeof(units) - 1; i++) {
        if ((*end | 0x20) == units[i]) {
            v *= exp2(10.0 * (double)(i + 1));
            end++;
            break;
        }
    }
    if (*end && strcasecmp(end, "b") && strcasecmp(end, "ib"))
        return -EINVAL;
    if (!(v < 0x1p62))
        return -ERANGE;
    *ret = (uint64_t)v;
    return 0;
}

enum { NEAR_LEN = 63 };

/* Edits between two short strings, by rows: insertion, deletion, substitution, and two neighbours
 * exchanged, which fingers do as often (optimal string alignment). */
static int distance(const char *a, const char *b)
{
    int rows[3][NEAR_LEN + 1], *above = rows[0], *row = rows[1], *before = rows[2];
    int n = (int)strlen(b);

    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        int *oldest = before;

        before = above;
        above = row;
        row = oldest;
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            row[j] = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (row[j - 1] + 1 < row[j])
                row[j] = row[j - 1] + 1;
            if (above[j] + 1 < row[j])
                row[j] = above[j] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
    }
    return row[n];
}

const char *str_nearest(const char *s, const char *const *names)
{
    int most = (int)(strlen(s) + 2) / 4; /* edits; what needs more is another word */

    return str_within(s, names, most > 1 ? most : 1);
}

const char *str_within(const char *s, const char *const *names, int most)
{
    int best = most + 1;
    const char *found = NULL;

    if (strlen(s) > NEAR_LEN)
        return NULL;
    for (; *names; names++) {
        int d = strlen(*names) > NEAR_LEN ? best : distance(s, *names);

        if (d < best) {
            best = d;
            found = *names;
        }
    }
    return found;
}

char *str_human_bytes(char buf[24], double bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    size_t i = 0;

    while (fabs(bytes) >= 1024 && i + 1 < ARRAY_LEN(unit)) {
        bytes /= 1024;
        i++;
    }
    snprintf(buf, 24, i && fabs(bytes) < 100 ? "%.1f %s" : "%.0f %s", bytes, unit[i]);
    return buf;
}

char *str_human_seconds(char buf[24], double s)
{
    if (s < 1)
        snprintf(buf, 24, "%.0f ms", s * 1e3);
    else if (s < 120)
        snprintf(buf, 24, s < 10 ? "%.1f s" : "%.0f s", s);
    else if (s < 7200)
        snprintf(buf, 24, "%.0f min", s / 60);
    else if (s < 48 * 3600.0)
        snprintf(buf, 24, "%.0f h %02d min", floor(s / 3600), (int)(fmod(s, 3600) / 60));
    else
        snprintf(buf, 24, "%.1f days", s / 86400);
    return buf;
}

uint64_t str_hash(const void *bytes, size_t n, uint64_t seed)
{
    enum { BLOCK = 256 };
    const uint64_t prime = UINT64_C(0x100000001b3);
    const unsigned char *p = bytes;
    uint64_t h = seed ? seed : UINT64_C(0xcbf29ce484222325), word;

    /* A product moves bits up only: what a word changed at its top is brought down for the next. */
    for (; n >= BLOCK; n -= BLOCK)
        for (const unsigned char *end = p + BLOCK; p < end; p += sizeof(word)) {
            memcpy(&word, p, sizeof(word));
            h = (h ^ word) * prime;
            h ^= h >> 32;
        }
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * prime;
    return h;
}

/* Length of the well-formed sequence at P with N bytes left, or 0 (table 3-7 of the Unicode
 * standard). */
static size_t utf8_sequence(const unsigned char *p, size_t n)
{
    unsigned char lo = 0x80, hi = 0xbf;
    size_t len;

    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (n < len)
        return 0;
    if (p[0] == 0xe0)
        lo = 0xa0;
    else if (p[0] == 0xed)
        hi = 0x9f;
    else if (p[0] == 0xf0)
        lo = 0x90;
    else if (p[0] == 0xf4)
        hi = 0x8f;
    if (p[1] < lo || p[1] > hi)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

bool str_is_utf8(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t len = utf8_sequence((const unsigned char *)s + i, n - i);

        if (!len)
            return false;
        i += len;
    }
    return true;
}
