#include "trainer/utf8.h"

#include <stdbool.h>

size_t tr_utf8_length(const char *text)
{
    unsigned char lead = (unsigned char)text[0];

    return lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Bytes of TEXT that begin a character, by table 3-7 of the Unicode Standard: all of it, in which
 * case *RET_WHOLE is true, or as many as could be one (at least one). */
static size_t maximal_part(bool *ret_whole, const unsigned char *text, size_t len)
{
    unsigned char lead = text[0], low = 0x80, high = 0xbf;
    size_t need = lead < 0x80    ? 1
                  : lead < 0xc2  ? 0
                  : lead < 0xe0  ? 2
                  : lead < 0xf0  ? 3
                  : lead <= 0xf4 ? 4
                                 : 0;
    size_t got = 1;

    if (lead == 0xe0)
        low = 0xa0;
    else if (lead == 0xed)
        high = 0x9f;
    else if (lead == 0xf0)
        low = 0x90;
    else if (lead == 0xf4)
        high = 0x8f;
    while (got < need && got < len && text[got] >= low && text[got] <= high) {
        low = 0x80;
        high = 0xbf;
        got++;
    }
    *ret_whole = got == need;
    return got;
}

void tr_utf8_repair(struct str *out, const char *text, size_t len)
{
    size_t from = 0, at = 0;

    while (at < len) {
        bool whole;
        size_t part = maximal_part(&whole, (const unsigned char *)text + at, len - at);

        if (!whole) {
            str_addn(out, text + from, at - from);
            str_add(out, "\xef\xbf\xbd");
            from = at + part;
        }
        at += part;
    }
    str_addn(out, text + from, len - from);
}
