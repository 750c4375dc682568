/* `partune completion SHELL`. */
#include "tuner/client/completion.h"

int cl_completion(struct cl *client)
{
    static const struct {
        const char *name;
        void (*print)(const struct cl_tables *tables, FILE *out);
    } shells[] = {{"bash", cl_complete_bash}, {"zsh", cl_complete_zsh}, {"fish", cl_complete_fish}};
    const char *shell = client->operand[0];

    for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
        char *text = NULL;
        size_t size = 0;
        FILE *out;

        if (!str_eq(shells[i].name, shell))
            continue;
        out = open_memstream(&text, &size);
        if (!out)
            abort(); /* out of memory */
        shells[i].print(client->tables, out);
        fclose(out);
        if (client->args.json) {
            AUTO_JSON *v = json_pack("{s:s, s:s}", "shell", shell, "text", text);

            cl_print_json(v);
        } else {
            fputs(text, stdout);
        }
        free(text);
        return CL_OK;
    }
    fprintf(stderr, "partune: no completion script for shell `%s`; use bash, zsh or fish\n", shell);
    return CL_USAGE;
}
