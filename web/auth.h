/*
 * Who presents a request: tokens by their hashes, and how often a peer has failed. Shared by the
 * files of web/ only; tokens that a server accepts are in token.c.
 */
#ifndef WEB_AUTH_H
#define WEB_AUTH_H

#include "web/web.h"

struct web_token {
    struct web_token *next;
    uint8_t hash[32];
    char *name;
    enum web_scope scope;
    bool local;  /* the token file's */
    bool proven; /* was presented and accepted: no failure of others locks it out */
};

enum { WEB_FAIL_SLOTS = 256, WEB_FAIL_LIMIT = 20, WEB_FAIL_WINDOW_MS = 60000 };

struct web_fail {
    uint64_t peer;
    int64_t since_ms;
    int count;
};

struct web_auth {
    struct web_token *tokens;
    struct web_fail fail[WEB_FAIL_SLOTS];
    uint64_t failures;
};

enum web_auth_result { WEB_AUTH_OK, WEB_AUTH_MISSING, WEB_AUTH_WRONG, WEB_AUTH_LIMITED };

/* Who presents HEADER ("Bearer …" or NULL) from PEER (a hash of its address). */
enum web_auth_result web_auth_check(const struct web_token **ret, struct web_auth *auth,
                                    const char *header, uint64_t peer, int64_t now_ms);
void web_auth_done(struct web_auth *auth);
void web_sha256(uint8_t out[32], const void *bytes, size_t size);
/* LEN bytes as 2 LEN lower-case digits and a NUL; and back, -EINVAL if HEX is anything else. */
void web_hex(char *out, const uint8_t *bytes, size_t len);
int web_unhex(uint8_t *out, size_t len, const char *hex);

#endif
