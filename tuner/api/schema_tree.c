/* The schemas of OpenAPI with what comes from tables of the code. */
#include "tuner/api/schemas.h"

#include <assert.h>

#include "base/base.h"
#include "db/db.h"
#include "plan/plan.h"

void tn_api_schema_words(json_t *schemas, const char *name, const char *key,
                         const char *const *words)
{
    json_t *properties = json_object_get(json_object_get(schemas, name), "properties");
    json_t *list = json_array();

    for (; *words; words++)
        json_array_append_new(list, json_string(*words));
    assert(json_object_get(properties, key)); /* else the words would be lost without a word */
    json_object_set_new(json_object_get(properties, key), "enum", list);
}

json_t *tn_api_schema_tree(void)
{
    json_t *schemas = NULL;
    const char *words[DB_STATES + 2];

    if (jx_parse(&schemas, tn_api_schemas, strlen(tn_api_schemas), NULL) < 0)
        return NULL;
    json_object_set_new(schemas, "Layout", pl_layout_schema());
    json_object_set_new(json_object_get(json_object_get(schemas, "Layout"), "properties"),
                        "cluster",
                        json_pack("{s:s, s:s}", "type", "string", "description",
                                  "of a campaign over several clusters: the one that it runs on"));
    tn_api_schema_words(schemas, "Workload", "precision", pl_precision_names);
    tn_api_schema_words(schemas, "Workload", "optimizer", pl_optimizer_names);
    tn_api_schema_words(schemas, "Campaign", "state", db_campaign_states);
    tn_api_schema_words(schemas, "CampaignSummary", "state", db_campaign_states);
    db_trial_state_names(words);
    tn_api_schema_words(schemas, "Trial", "state", words);
    return schemas;
}
