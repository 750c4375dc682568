/* Which layouts of a landscape the memory plan says fit, against those that its table says fit. */
#include "tests/bench/landscape.h"
#include "tests/bench/plan_parts.h"

int bench_boundary(const char *path, struct err *e)
{
    struct landscape l;
    char what[256];
    int r = landscape_load(&l, path, e);

    for (int flash = 0; r == 0 && flash < 2; flash++) {
        struct pl_trainer trainer = *l.spec.trainer;
        struct pl_problem p = se_spec_problem(&l.spec);
        size_t both = 0, plan = 0, table = 0;

        trainer.flash = flash;
        p.trainer = &trainer;
        for (size_t i = 0; i < l.n; i++) {
            bool planned = pl_fits(&p, &l.layout[i], 0), measured = l.tokens[i] > 0;

            plan += planned;
            table += measured;
            both += planned && measured;
        }
        snprintf(what, sizeof(what), "%s, scores %s: precision", l.name,
                 flash ? "streaming" : "kept");
        bench_say("plan_boundary", what, plan ? (double)both / (double)plan : 0, "share", l.n);
        snprintf(what, sizeof(what), "%s, scores %s: recall", l.name, flash ? "streaming" : "kept");
        bench_say("plan_boundary", what, table ? (double)both / (double)table : 0, "share", l.n);
    }
    landscape_done(&l);
    return r;
}
