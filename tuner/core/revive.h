/*
 * Stored campaigns come back to work (revive.c) with their attempts (readopt.c); all of them after
 * a restart (recover.c). Owns the searches that are being built.
 */
#ifndef TUNER_REVIVE_H
#define TUNER_REVIVE_H

#include "db/db.h"
#include "tuner/core/engine.h"

/* ---- revive.c ------------------------------------------------------------ */

/* Bring a stored campaign back to work, at once or (0, and it is not in memory yet) a while later.
 */
int tn_campaign_revive(struct tn_service *svc, const struct db_campaign *row, bool at_start,
                       struct err *error);
/* A new campaign that is stored and not in memory: build its search. Its reason until then: */
#define TN_PREPARING "preparing the space"
void tn_campaign_prepare(struct tn_service *svc, const char *id, struct tn_space space);
bool tn_campaign_reviving(const struct tn_service *svc, const char *id);
/* -EAGAIN while it is being brought back. */
int tn_campaign_is_back(const struct tn_service *svc, const char *id, struct err *error);
/* How many campaigns are; AT_START: only those of the start. */
int tn_reviving(const struct tn_service *svc, bool at_start);
/* It cannot be brought back: it is paused for that reason. */
void tn_campaign_give_up(struct tn_service *svc, const struct db_campaign *row,
                         const struct err *why);

/* ---- readopt.c ----------------------------------------------------------- */

/* The attempt AT, which has not ended: adopted, settled, or ended if its campaign is not back. */
void tn_recover_attempt(struct tn_service *svc, const struct db_attempt *at);
/* Those of campaign ID. */
void tn_recover_attempts(struct tn_service *svc, const char *id);

/* ---- recover.c ----------------------------------------------------------- */

/* After a restart: all campaigns that are not over, and all attempts that have not ended. */
int tn_recover(struct tn_service *svc, struct err *error);

#endif
