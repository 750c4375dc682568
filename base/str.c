#include "base/base.h"

#include <errno.h>
#include <math.h>

static void reserve(struct str *str, size_t more)
{
    size_t need = str->len + more + 1;

    if (need <= str->cap)
        return;
    str->cap = str->cap * 2 > need ? str->cap * 2 : need < 64 ? 64 : need;
    str->text = mem_realloc(str->text, str->cap);
}

void str_addn(struct str *str, const void *bytes, size_t size)
{
    reserve(str, size);
    if (size)
        memcpy(str->text + str->len, bytes, size);
    str->len += size;
    str->text[str->len] = '\0';
}

void str_add(struct str *str, const char *text)
{
    str_addn(str, text, strlen(text));
}

void str_addc(struct str *str, char ch)
{
    str_addn(str, &ch, 1);
}

void str_vaddf(struct str *str, const char *fmt, va_list ap)
{
    va_list again;
    int n;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    reserve(str, (size_t)n);
    vsnprintf(str->text + str->len, (size_t)n + 1, fmt, ap);
    str->len += (size_t)n;
}

void str_addf(struct str *str, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    str_vaddf(str, fmt, ap);
    va_end(ap);
}

void str_trunc(struct str *str, size_t len)
{
    if (len < str->len) {
        str->len = len;
        str->text[len] = '\0';
    }
}

char *str_take(struct str *str)
{
    char *text = str->text ? str->text : mem_strdup("");

    *str = (struct str){0};
    return text;
}

void str_done(struct str *str)
{
    free(str->text);
    *str = (struct str){0};
}

const char *str_text(const struct str *str)
{
    return str->text ? str->text : "";
}

bool str_starts(const char *text, const char *prefix)
{
    return !strncmp(text, prefix, strlen(prefix));
}

bool str_ends(const char *text, const char *suffix)
{
    size_t n = strlen(text), m = strlen(suffix);

    return n >= m && !memcmp(text + n - m, suffix, m);
}

bool str_has_word(const char *text, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = text; at && *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strcspn(at, " ") == n && !strncmp(at, word, n) && n > 0)
            return true;
    }
    return false;
}

bool str_eq(const char *left, const char *right)
{
    return left && right && !strcmp(left, right);
}

int str_to_i64(int64_t *ret, const char *text, int64_t min, int64_t max)
{
    char *end;
    long long v;

    if (!text || (*text != '-' && (*text < '0' || *text > '9')))
        return -EINVAL;
    errno = 0;
    v = strtoll(text, &end, 10);
    if (end == text || *end)
        return -EINVAL;
    if (errno || v < min || v > max)
        return -ERANGE;
    *ret = v;
    return 0;
}

int str_to_f64(double *ret, const char *text)
{
    char *end;
    double v;

    if (!text || !*text || *text == ' ')
        return -EINVAL;
    v = strtod(text, &end);
    if (end == text || *end || !isfinite(v))
        return -EINVAL;
    *ret = v;
    return 0;
}

int str_to_bytes(uint64_t *ret, const char *text)
{
    static const char units[] = "kmgt";
    char *end;
    double v;

    if (!text || *text < '0' || *text > '9')
        return -EINVAL;
    v = strtod(text, &end);
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

/* Edits between two short strings, by rows: insertion, deletion, substitution, and two neighbors
 * exchanged, which fingers do as often (optimal string alignment). */
static int distance(const char *left, const char *right)
{
    int rows[3][NEAR_LEN + 1], *above = rows[0], *row = rows[1], *before = rows[2];
    int n = (int)strlen(right);

    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; left[i - 1]; i++) {
        int *oldest = before;

        before = above;
        above = row;
        row = oldest;
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            row[j] = above[j - 1] + (left[i - 1] != right[j - 1]);
            if (row[j - 1] + 1 < row[j])
                row[j] = row[j - 1] + 1;
            if (above[j] + 1 < row[j])
                row[j] = above[j] + 1;
            if (i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
    }
    return row[n];
}

const char *str_nearest(const char *word, const char *const *names)
{
    int most = (int)(strlen(word) + 2) / 4; /* edits; what needs more is another word */

    return str_within(word, names, most > 1 ? most : 1);
}

const char *str_within(const char *word, const char *const *names, int most)
{
    int best = most + 1;
    const char *found = NULL;

    if (strlen(word) > NEAR_LEN)
        return NULL;
    for (; *names; names++) {
        int d = strlen(*names) > NEAR_LEN ? best : distance(word, *names);

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

char *str_human_seconds(char buf[24], double seconds)
{
    if (seconds < 1)
        snprintf(buf, 24, "%.0f ms", seconds * 1e3);
    else if (seconds < 120)
        snprintf(buf, 24, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
    else if (seconds < 7200)
        snprintf(buf, 24, "%.0f min", seconds / 60);
    else if (seconds < 48 * 3600.0)
        snprintf(buf, 24, "%.0f h %02d min", floor(seconds / 3600),
                 (int)(fmod(seconds, 3600) / 60));
    else
        snprintf(buf, 24, "%.1f days", seconds / 86400);
    return buf;
}

uint64_t str_hash(const void *bytes, size_t size, uint64_t seed)
{
    enum { BLOCK = 256 };
    const uint64_t prime = UINT64_C(0x100000001b3);
    const unsigned char *p = bytes;
    uint64_t h = seed ? seed : UINT64_C(0xcbf29ce484222325), word;

    /* A product moves bits up only: what a word changed at its top is brought down for the next. */
    for (; size >= BLOCK; size -= BLOCK)
        for (const unsigned char *end = p + BLOCK; p < end; p += sizeof(word)) {
            memcpy(&word, p, sizeof(word));
            h = (h ^ word) * prime;
            h ^= h >> 32;
        }
    for (size_t i = 0; i < size; i++)
        h = (h ^ p[i]) * prime;
    return h;
}

/* Length of the well-formed sequence at BYTES with SIZE bytes left, or 0 (table 3-7 of the Unicode
 * standard). */
static size_t utf8_sequence(const unsigned char *bytes, size_t size)
{
    unsigned char lo = 0x80, hi = 0xbf;
    size_t len;

    if (bytes[0] < 0x80)
        return 1;
    if (bytes[0] < 0xc2 || bytes[0] > 0xf4)
        return 0;
    len = bytes[0] < 0xe0 ? 2 : bytes[0] < 0xf0 ? 3 : 4;
    if (size < len)
        return 0;
    if (bytes[0] == 0xe0)
        lo = 0xa0;
    else if (bytes[0] == 0xed)
        hi = 0x9f;
    else if (bytes[0] == 0xf0)
        lo = 0x90;
    else if (bytes[0] == 0xf4)
        hi = 0x8f;
    if (bytes[1] < lo || bytes[1] > hi)
        return 0;
    for (size_t i = 2; i < len; i++)
        if ((bytes[i] & 0xc0) != 0x80)
            return 0;
    return len;
}

bool str_is_utf8(const char *text, size_t size)
{
    for (size_t i = 0; i < size;) {
        size_t len = utf8_sequence((const unsigned char *)text + i, size - i);

        if (!len)
            return false;
        i += len;
    }
    return true;
}
