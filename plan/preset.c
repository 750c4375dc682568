#include "plan/preset.h"

#include <string.h>

#include "plan/plan.h"

static const char *find(const struct pl_preset *table, const char *name)
{
    for (; table->name; table++)
        if (name && !strcmp(table->name, name))
            return table->text;
    return NULL;
}

const char *const *pl_model_presets(void)
{
    return pl_model_preset_names;
}

const char *const *pl_cluster_presets(void)
{
    return pl_cluster_preset_names;
}

const char *const *pl_model_repositories(void)
{
    static const char *const names[] = {
#define REPOSITORY(name, preset) name,
#include "plan/repositories.def"
        NULL};

    return names;
}

const char *pl_model_preset(const char *name)
{
    static const struct {
        const char *name, *preset;
    } repository[] = {
#define REPOSITORY(name, preset) {name, preset},
#include "plan/repositories.def"
    };

    for (size_t i = 0; i < sizeof(repository) / sizeof(*repository); i++)
        if (name && !strcmp(repository[i].name, name))
            name = repository[i].preset;
    return find(pl_model_preset_table, name);
}

const char *pl_cluster_preset(const char *name)
{
    return find(pl_cluster_preset_table, name);
}

const char *const *pl_stack_presets(void)
{
    return pl_stack_preset_names;
}

const char *pl_stack_preset(const char *name)
{
    return find(pl_stack_preset_table, name);
}
