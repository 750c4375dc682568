/*
 * Who is told of a change by a POST. Owns the hooks of the configuration and their sender.
 */
#ifndef TUNER_WEBHOOKS_H
#define TUNER_WEBHOOKS_H

#include "base/base.h"

struct tn_service;

/* Read [webhook "NAME"], and tell the store's triggers what to make deliveries of. */
int tn_webhooks_open(struct tn_service *svc, struct err *error);
int tn_webhooks_check(const struct conf *conf, struct err *error); /* only read it */
void tn_webhooks_tick(struct tn_service *svc);                     /* send what is due */
void tn_webhooks_close(struct tn_service *svc);

#endif
