/* The body of POST /v1/campaigns, with everything in it (model, cluster, workload, space, baseline,
 * search, launcher): refused with a reason, or understood, and then what was stored is understood
 * again after a restart. */
#include "tuner/core/spec.h"
#include "tuner/launch/launch.h"
#include "tuner/machine/machine.h"
#include "tuner/machine/slots.h"
#include "tuner/state/service.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tn_machine machine = {0};
    struct tn_service svc = {
        .data_dir = mem_strdup("/nonexistent"), .kinds = &tn_kinds, .machine = &machine};
    AUTO_JSON *v = NULL, *rules = NULL;
    struct tn_spec *s = NULL, *again = NULL;
    struct err e = {0};

    tn_slots_init(&machine.slots, 0);
    if (jx_parse(&v, (const char *)data, size, &e) == 0) {
        if (tn_spec_parse(&s, &rules, &svc, v, &e) < 0) {
            if (!e.text[0])
                abort();
        } else if (tn_spec_parse(&again, NULL, &svc, s->resolved, &e) < 0) {
            fprintf(stderr, "%s: %s\n", e.pointer, e.text);
            abort();
        }
    }
    tn_spec_free(s);
    tn_spec_free(again);
    free(svc.data_dir);
    return 0;
}
