/*
 * Inside tuner/: how webhooks are posted.
 *
 *   webhook.c       which hooks there are, what is due, and what became of it (the loop's thread)
 *   webhook_send.c  the requests, on a thread of their own
 *
 * docs/reference/http.md (Webhooks) says what a receiver gets.
 */
#ifndef TUNER_WEBHOOK_H
#define TUNER_WEBHOOK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/base.h"

enum { TN_HOOK_UUID = 33, TN_SIGNATURE_TEXT = 7 + 64 + 1 };

/* One request. Its owner is the loop's thread, the sender's between tn_sender_post() and
 * tn_sender_take(). */
struct tn_post {
    struct tn_post *next;
    int64_t id; /* of the delivery */
    char uuid[TN_HOOK_UUID];
    char *hook, *url, *event, *secret, *ca_file, *body;
    bool allow_private;
    int64_t attempts; /* with this one */

    /* The answer. */
    long status;   /* of HTTP; 0: none came */
    bool refused;  /* every address of the host is forbidden */
    char *problem; /* why there is no status */
};

struct tn_post *tn_post_free(struct tn_post *post);

struct tn_sender;

/* DONE is called on the sender's thread when there is something to take. */
int tn_sender_start(struct tn_sender **ret, void (*done)(void *arg), void *arg, struct err *error);
void tn_sender_post(struct tn_sender *sender, struct tn_post *owned_p);
struct tn_post *tn_sender_take(struct tn_sender *sender); /* answered ones, or NULL */
/* Requests under way are given up. */
struct tn_sender *tn_sender_stop(struct tn_sender *sender);

/* Is it an address of the public internet? Not: loopback, private, link-local, carrier-grade NAT,
 * documentation, multicast, reserved, nor an IPv6 address that stands for such an IPv4 one. */
bool tn_address_public(const struct sockaddr *address);

/* "sha256=" and the HMAC-SHA256 of "TIME.BODY" in hexadecimal. */
void tn_signature(char ret[TN_SIGNATURE_TEXT], const char *secret, int64_t time, const char *body);

#endif
