/* Tokens, the limit on guesses, and kept answers. */
#include "tests/unit/unit.h"

#include "web/internal.h"

static struct web_token *known(const char *text, enum web_scope scope)
{
    struct web_token *t = mem_alloc(sizeof(*t));

    web_sha256(t->hash, text, strlen(text));
    t->name = mem_strdup("n");
    t->scope = scope;
    return t;
}

static enum web_auth_result ask(struct web_auth *a, const char *header, uint64_t peer, int64_t now)
{
    const struct web_token *t = NULL;

    return web_auth_check(&t, a, header, peer, now);
}

static void the_hash_is_sha256(void **state)
{
    char hash[WEB_HASH_HEX];

    (void)state;
    web_token_hash(hash, "abc"); /* FIPS 180-2, appendix B.1 */
    assert_string_equal(hash, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

static void tokens_are_made_unlike_and_match_their_hash(void **state)
{
    char one[WEB_TOKEN_TEXT], two[WEB_TOKEN_TEXT], hash[WEB_HASH_HEX], again[WEB_HASH_HEX];
    struct err e;

    (void)state;
    assert_int_equal(web_token_make(one, hash, &e), 0);
    web_token_hash(again, one);
    assert_string_equal(hash, again);
    assert_int_equal(web_token_make(two, hash, &e), 0);
    assert_string_not_equal(one, two);
    assert_int_equal(strlen(one), 43);
}

static void a_token_is_accepted_by_its_whole_text(void **state)
{
    struct web_auth a = {.tokens = known("pt_secret", WEB_READ)};

    (void)state;
    assert_int_equal(ask(&a, "Bearer pt_secret", 1, 0), WEB_AUTH_OK);
    assert_int_equal(ask(&a, "bearer  pt_secret", 1, 0), WEB_AUTH_OK);
    assert_int_equal(ask(&a, "Bearer pt_secre", 1, 0), WEB_AUTH_WRONG);
    assert_int_equal(ask(&a, "Bearer pt_secret ", 1, 0), WEB_AUTH_WRONG);
    assert_int_equal(ask(&a, "Basic pt_secret", 1, 0), WEB_AUTH_WRONG);
    assert_int_equal(ask(&a, "Bearer ", 1, 0), WEB_AUTH_WRONG);
    assert_int_equal(ask(&a, NULL, 1, 0), WEB_AUTH_MISSING);
    web_auth_done(&a);
}

static void guessing_is_limited_by_peer_and_minute(void **state)
{
    struct web_auth a = {.tokens = known("pt_used", WEB_READ)};

    (void)state;
    a.tokens->next = known("pt_new", WEB_READ);
    assert_int_equal(ask(&a, "Bearer pt_used", 7, 0), WEB_AUTH_OK);
    for (int i = 0; i < WEB_FAIL_LIMIT; i++)
        assert_int_equal(ask(&a, "Bearer guess", 7, i), WEB_AUTH_WRONG);
    assert_int_equal(ask(&a, "Bearer guess", 7, 100), WEB_AUTH_LIMITED);
    /* a lucky guess is not told from a wrong one, but clients with good tokens continue */
    assert_int_equal(ask(&a, "Bearer pt_new", 7, 100), WEB_AUTH_LIMITED);
    assert_int_equal(ask(&a, "Bearer pt_used", 7, 100), WEB_AUTH_OK);
    assert_int_equal(ask(&a, "Bearer pt_new", 8, 100), WEB_AUTH_OK);
    assert_int_equal(ask(&a, "Bearer guess", 7, WEB_FAIL_WINDOW_MS + 1000), WEB_AUTH_WRONG);
    web_auth_done(&a);
}

static void the_last_answers_are_kept(void **state)
{
    struct web_idem *i = web_idem_new();
    struct web_answer got, put = {201, "h", "application/json", "/x", "body", 4};
    char key[32];

    (void)state;
    for (int k = 0; k <= WEB_IDEM_KEEP; k++) {
        snprintf(key, sizeof(key), "k%d", k);
        web_idem_keep(i, key, &put);
    }
    assert_false(web_idem_find(&got, i, "k0", NULL));
    assert_true(web_idem_find(&got, i, "k1", NULL));
    assert_int_equal(got.status, 201);
    assert_string_equal(got.location, "/x");
    assert_memory_equal(got.body, "body", 4);
    web_idem_free(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hash_is_sha256),
        cmocka_unit_test(tokens_are_made_unlike_and_match_their_hash),
        cmocka_unit_test(a_token_is_accepted_by_its_whole_text),
        cmocka_unit_test(guessing_is_limited_by_peer_and_minute),
        cmocka_unit_test(the_last_answers_are_kept),
    };

    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
