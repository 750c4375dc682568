/* Which addresses a webhook may be posted to, and its signature. */
#include "tests/unit/unit.h"

#include <arpa/inet.h>

#include "tuner/service/webhook.h"

static bool is_public(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};

    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return tn_address_public((const struct sockaddr *)(const void *)&v4);
    assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return tn_address_public((const struct sockaddr *)(const void *)&v6);
}

/* First and last address of each block, and their neighbors outside. */
static void special_addresses_are_not_public(void **state)
{
    static const char *const no[] = {"0.0.0.0",
                                     "0.255.255.255",
                                     "10.0.0.0",
                                     "10.255.255.255",
                                     "100.64.0.0",
                                     "100.127.255.255",
                                     "127.0.0.1",
                                     "127.255.255.255",
                                     "169.254.0.0",
                                     "169.254.169.254",
                                     "172.16.0.0",
                                     "172.31.255.255",
                                     "192.0.0.1",
                                     "192.0.2.255",
                                     "192.88.99.1",
                                     "192.168.0.0",
                                     "192.168.255.255",
                                     "198.18.0.0",
                                     "198.19.255.255",
                                     "198.51.100.1",
                                     "203.0.113.9",
                                     "224.0.0.1",
                                     "240.0.0.1",
                                     "255.255.255.255",
                                     "::",
                                     "::1",
                                     "::7f00:1",
                                     "::ffff:127.0.0.1",
                                     "::ffff:10.1.2.3",
                                     "64:ff9b::a9fe:a9fe",
                                     "64:ff9b:1::1",
                                     "fc00::1",
                                     "fdff::1",
                                     "fe80::1",
                                     "fec0::1",
                                     "ff02::1",
                                     "100::1",
                                     "2001::1",
                                     "2001:1ff::1",
                                     "2001:db8::1",
                                     "2002:7f00:1::1",
                                     "2002:c0a8:1::1",
                                     "3fff::1",
                                     "4000::1"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(no); i++)
        if (is_public(no[i]))
            fail_msg("%s counts as public", no[i]);
}

static void the_rest_is_public(void **state)
{
    static const char *const yes[] = {
        "1.1.1.1",          "9.255.255.255",   "11.0.0.0",     "100.63.255.255",
        "100.128.0.0",      "126.255.255.255", "128.0.0.0",    "169.253.255.255",
        "169.255.0.0",      "172.15.255.255",  "172.32.0.0",   "192.167.255.255",
        "192.169.0.0",      "198.17.255.255",  "198.20.0.0",   "223.255.255.255",
        "2001:200::1",      "2606:4700::1",    "2a00:1450::1", "::ffff:1.1.1.1",
        "64:ff9b::101:101", "2002:101:101::1"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(yes); i++)
        if (!is_public(yes[i]))
            fail_msg("%s does not count as public", yes[i]);
}

/* The expected value was made with Python's hmac module. */
static void a_signature_covers_time_and_body(void **state)
{
    char a[TN_SIGNATURE_TEXT], b[TN_SIGNATURE_TEXT];

    (void)state;
    tn_signature(a, "0123456789abcdef", 1700000000, "{\"id\":1}");
    assert_string_equal(a,
                        "sha256=4bcaced68dfea90a68df035b89cb7fb26692d899d32a1ccb1b0616cf48e4d1ed");
    tn_signature(b, "0123456789abcdef", 1700000001, "{\"id\":1}");
    assert_string_not_equal(a, b);
    tn_signature(b, "0123456789abcdeF", 1700000000, "{\"id\":1}");
    assert_string_not_equal(a, b);
    tn_signature(b, "0123456789abcdef", 1700000000, "{\"id\":2}");
    assert_string_not_equal(a, b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(special_addresses_are_not_public),
        cmocka_unit_test(the_rest_is_public),
        cmocka_unit_test(a_signature_covers_time_and_body),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
