/* trainer.json of a checkpoint that anybody may have damaged: refused with a reason, or a state. */
#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"
#include "trainer/ckpt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Without the sync of file_write_atomic(): nobody loses power here, and there are many rounds. */
static void put(const char *path, const uint8_t *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    if (fd < 0 || file_write_fd(fd, data, size) < 0)
        abort();
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_JSON *name = json_string("nano-moe");
    AUTO_FREE char *folder = mem_printf("fuzz-checkpoint.%d", (int)getpid());
    AUTO_FREE char *path = mem_printf("%s/trainer.json", folder);
    struct tr_ckpt_state state = {0};
    struct pl_model m;
    struct err e = {0};

    if (pl_model_parse(&m, name, &e) < 0 || file_mkdirs(folder, 0700, &e) < 0)
        abort();
    put(path, data, size);
    if (tr_ckpt_peek(&state, folder, &m, PL_ADAMW, &e) < 0 && !e.text[0])
        abort();
    file_remove_tree(folder, NULL);
    return 0;
}
