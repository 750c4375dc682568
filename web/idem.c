/*
 * Answers by Idempotency-Key, in memory: the last WEB_IDEM_KEEP, oldest forgotten first. A program
 * that must answer alike after a restart gives the server a store of its own.
 */
#include "web/internal.h"

struct entry {
    char *key;
    struct web_answer answer; /* owns its texts */
};

struct web_idem {
    struct entry entry[WEB_IDEM_KEEP];
    int next; /* slot of the oldest */
};

static void entry_done(struct entry *entry)
{
    free(entry->key);
    free((char *)entry->answer.hash);
    free((char *)entry->answer.type);
    free((char *)entry->answer.location);
    free((char *)entry->answer.body);
    *entry = (struct entry){0};
}

struct web_idem *web_idem_new(void)
{
    return mem_alloc(sizeof(struct web_idem));
}

struct web_idem *web_idem_free(struct web_idem *idem)
{
    for (int k = 0; idem && k < WEB_IDEM_KEEP; k++)
        entry_done(&idem->entry[k]);
    free(idem);
    return NULL;
}

bool web_idem_find(struct web_answer *ret, void *ctx, const char *key, struct arena *arena)
{
    struct web_idem *i = ctx;

    (void)arena;
    for (int k = 0; k < WEB_IDEM_KEEP; k++) {
        if (str_eq(i->entry[k].key, key)) {
            *ret = i->entry[k].answer;
            return true;
        }
    }
    return false;
}

void web_idem_keep(void *ctx, const char *key, const struct web_answer *answer)
{
    struct web_idem *i = ctx;
    struct entry *n = &i->entry[i->next];
    char *body = mem_alloc(answer->size + 1);

    entry_done(n);
    memcpy(body, answer->body, answer->size);
    n->key = mem_strdup(key);
    n->answer = (struct web_answer){
        .status = answer->status,
        .hash = mem_strdup(answer->hash),
        .type = mem_strdup(answer->type),
        .location = mem_strdup(answer->location),
        .body = body,
        .size = answer->size,
    };
    i->next = (i->next + 1) % WEB_IDEM_KEEP;
}
