/*
 * libcurl, loaded when the first webhook needs it: with what it brings (OpenSSL, Kerberos, LDAP,
 * SSH) it is a quarter of what the daemon would hold in memory, and most daemons have no webhook.
 */
#ifndef TUNER_LIBCURL_H
#define TUNER_LIBCURL_H

#include <curl/curl.h>

#include "base/base.h"

/* The functions that are used: curl_easy_init is ->easy_init. */
#define TN_CURL_FUNCTIONS(X)                                                                       \
    X(global_init)                                                                                 \
    X(easy_init)                                                                                   \
    X(easy_setopt)                                                                                 \
    X(easy_getinfo)                                                                                \
    X(easy_strerror)                                                                               \
    X(easy_cleanup)                                                                                \
    X(slist_append)                                                                                \
    X(slist_free_all)                                                                              \
    X(multi_init)                                                                                  \
    X(multi_add_handle)                                                                            \
    X(multi_remove_handle)                                                                         \
    X(multi_perform)                                                                               \
    X(multi_info_read)                                                                             \
    X(multi_poll)                                                                                  \
    X(multi_wakeup)                                                                                \
    X(multi_cleanup)

struct tn_curl {
#define TN_CURL_MEMBER(f) __typeof__(&curl_##f) f;
    TN_CURL_FUNCTIONS(TN_CURL_MEMBER)
#undef TN_CURL_MEMBER
};

/* Loaded and initialized, the same at each call, for the rest of the program; NULL, and ERROR is
 * set, if it is not installed or lacks a function. Not for several threads at once. */
const struct tn_curl *tn_curl_load(struct err *error);

#endif
