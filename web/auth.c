/*
 * Bearer tokens. Only SHA-256 hashes are kept: tokens are 240 random bits, so a slow password hash
 * would add nothing. Every known hash is compared in constant time.
 *
 * Wrong tokens are counted by peer; over the limit a peer gets 429 until its minute is over, except
 * with a token that has been used before: on a shared address a stranger's guesses must not lock
 * out who is at work.
 */
#include "web/internal.h"

#include <errno.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <sys/random.h>

void web_sha256(uint8_t out[32], const void *bytes, size_t size)
{
    struct sha256_ctx c;

    sha256_init(&c);
    sha256_update(&c, size, bytes);
    sha256_digest(&c, 32, out);
}

void web_hex(char *out, const uint8_t *bytes, size_t len)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < len; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * len] = '\0';
}

int web_unhex(uint8_t *out, size_t len, const char *hex)
{
    if (strlen(hex) != 2 * len || strspn(hex, "0123456789abcdefABCDEF") != 2 * len)
        return -EINVAL;
    for (size_t i = 0; i < len; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};

        out[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return 0;
}

void web_token_hash(char hash[WEB_HASH_HEX], const char *token)
{
    uint8_t h[32];

    web_sha256(h, token, strlen(token));
    web_hex(hash, h, sizeof(h));
}

int web_token_make(char ret_token[WEB_TOKEN_TEXT], char ret_hash[WEB_HASH_HEX], struct err *error)
{
    /* 64 letters that need no escaping in URLs and shells; 40 of them are 240 bits. */
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t random[40];

    if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
        return err_set(error, -EIO, "no random numbers: %m");
    memcpy(ret_token, "pt_", 3);
    for (size_t i = 0; i < sizeof(random); i++)
        ret_token[3 + i] = letters[random[i] & 63];
    ret_token[3 + sizeof(random)] = '\0';
    web_token_hash(ret_hash, ret_token);
    return 0;
}

static struct web_fail *fail_slot(struct web_auth *auth, uint64_t peer, int64_t now_ms)
{
    struct web_fail *f = &auth->fail[peer % WEB_FAIL_SLOTS];

    if (f->peer != peer || now_ms - f->since_ms > WEB_FAIL_WINDOW_MS || now_ms < f->since_ms)
        *f = (struct web_fail){.peer = peer, .since_ms = now_ms};
    return f;
}

enum web_auth_result web_auth_check(const struct web_token **ret, struct web_auth *auth,
                                    const char *header, uint64_t peer, int64_t now_ms)
{
    struct web_fail *f;
    struct web_token *found = NULL;
    uint8_t hash[32];

    if (!header)
        return WEB_AUTH_MISSING;
    f = fail_slot(auth, peer, now_ms);
    if (!strncasecmp(header, "Bearer ", 7)) {
        const char *token = header + 7 + strspn(header + 7, " ");

        web_sha256(hash, token, strlen(token));
        for (struct web_token *t = auth->tokens; t; t = t->next)
            if (memeql_sec(t->hash, hash, sizeof(hash)))
                found = t;
    }
    if (f->count >= WEB_FAIL_LIMIT && !(found && found->proven)) {
        auth->failures++;
        return WEB_AUTH_LIMITED;
    }
    if (!found) {
        f->count++;
        auth->failures++;
        return WEB_AUTH_WRONG;
    }
    found->proven = true;
    *ret = found;
    return WEB_AUTH_OK;
}

void web_auth_done(struct web_auth *auth)
{
    while (auth->tokens) {
        struct web_token *t = auth->tokens;

        auth->tokens = t->next;
        free(t->name);
        free(t);
    }
}
