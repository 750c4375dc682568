/* Private to plan/: the tables that embed.sh makes of presets/ and examples/, sorted by name, ended
 * by a NULL name. */
#ifndef PLAN_PRESET_H
#define PLAN_PRESET_H

struct pl_preset {
    const char *name, *text;
};

extern const struct pl_preset pl_model_preset_table[], pl_cluster_preset_table[];
extern const struct pl_preset pl_example_preset_table[], pl_stack_preset_table[];

extern const char *const pl_model_preset_names[]; /* NULL-terminated, as are these: */
extern const char *const pl_cluster_preset_names[];
extern const char *const pl_example_preset_names[];
extern const char *const pl_stack_preset_names[];

#endif
